"""Epochs give one order, however the origins interleave and wherever a restart cuts."""

import random
from collections.abc import Iterator

from fluvial.schemas.erasure import Erasure
from fluvial.schemas.tick import Tick
from fluvial.streams.epochs import Epochs

ORIGINS = ("land/0", "land/1", "land/2")
Sent = tuple[str | None, int, int, str | Tick]  # origin, epoch, time, record or tick


def logs() -> dict[str, list[Sent]]:
    """What three origins send: records of the same stretch of time between the same ticks, one tick missing in each."""
    dice = random.Random(7)
    logs: dict[str, list[Sent]] = {}
    for number, origin in enumerate(ORIGINS):
        log: list[Sent] = []
        slot = 0
        for tick in range(10, 100, 10):
            for i in range(dice.randrange(4)):
                log.append((origin, slot, tick + dice.randrange(20), f"{origin}-{tick}-{i}"))
            if tick != 20 + 10 * number:
                slot = tick
                log.append((origin, slot, 0, Tick(slot=tick, at=tick, flush=tick == 50 and number == 0)))
        logs[origin] = log
    return logs


def interleaved(seed: int) -> list[Sent]:
    dice = random.Random(seed)
    waiting = {origin: list(log) for origin, log in logs().items()}
    partition = []
    while any(waiting.values()):
        partition.append(waiting[dice.choice([o for o, log in waiting.items() if log])].pop(0))
    return partition


def take(epochs: Epochs[str], offset: int, sent: Sent) -> Iterator[tuple[list[str], Tick]]:
    origin, epoch, time, item = sent
    if isinstance(item, Tick):
        epochs.tick(offset, origin, item)
    else:
        epochs.add(offset, origin, epoch, time, item)
    yield from epochs.ready()


def handled(partition: list[Sent]) -> list[tuple[list[str], Tick]]:
    epochs: Epochs[str] = Epochs(ORIGINS, done=0, plain=-1)
    return [group for offset, sent in enumerate(partition) for group in take(epochs, offset, sent)]


def test_the_order_is_the_same_for_every_interleaving() -> None:
    expected = handled(interleaved(0))
    assert [tick.slot for _, tick in expected] == [10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert [tick.flush for _, tick in expected] == [slot == 50 for slot in range(10, 100, 10)]
    for seed in range(1, 200):
        assert handled(interleaved(seed)) == expected


def test_every_record_before_the_last_tick_comes_exactly_once_and_in_the_order_of_time() -> None:
    groups = handled(interleaved(3))
    given = [name for names, _ in groups for name in names]
    sent = [item for log in logs().values() for _, _, _, item in log if isinstance(item, str)]
    assert sorted(given) == sorted(sent)
    times = {item: time for log in logs().values() for _, _, time, item in log if isinstance(item, str)}
    for names, _ in groups:
        assert [times[name] for name in names] == sorted(times[name] for name in names)


def test_a_restart_anywhere_changes_nothing() -> None:
    expected = handled(interleaved(5))
    partition = interleaved(5)
    for cut in range(len(partition)):
        epochs: Epochs[str] = Epochs(ORIGINS, done=0, plain=-1)
        groups: list[tuple[list[str], Tick]] = []
        resume, done = 0, 0
        for offset in range(cut):
            new = list(take(epochs, offset, partition[offset]))
            if new:
                groups += new
                first = epochs.first_waiting()
                resume, done = (offset + 1 if first is None else first), new[-1][1].slot
        restarted: Epochs[str] = Epochs(ORIGINS, done=done, plain=-1)
        for offset in range(resume, len(partition)):
            groups += list(take(restarted, offset, partition[offset]))
        assert groups == expected, f"cut at {cut}"


def test_a_record_without_origin_comes_with_the_next_tick_and_only_once() -> None:
    epochs: Epochs[str] = Epochs(("land/0",), done=0, plain=-1)
    epochs.add(0, None, 0, 5, "vote")
    epochs.tick(1, "land/0", Tick(slot=1, at=1))
    assert list(epochs.ready()) == [(["vote"], Tick(slot=1, at=1))]
    assert epochs.plain == 0
    again: Epochs[str] = Epochs(("land/0",), done=1, plain=0)
    again.add(0, None, 0, 5, "vote")
    assert again.first_waiting() is None


def test_records_without_origin_have_their_place_by_the_log_alone() -> None:
    for seed in range(50):
        dice = random.Random(seed)
        partition = interleaved(seed)
        for number in range(20):
            partition.insert(dice.randrange(len(partition)), (None, 0, dice.randrange(120), f"vote-{number}"))
        expected = handled(partition)
        epochs: Epochs[str] = Epochs(ORIGINS, done=0, plain=-1)
        groups: list[tuple[list[str], Tick]] = []
        for offset, (origin, epoch, time, item) in enumerate(partition):
            if isinstance(item, Tick):
                epochs.tick(offset, origin, item)
            else:
                epochs.add(offset, origin, epoch, time, item)
            if dice.random() < 0.2:  # a fetch ends anywhere
                groups += epochs.ready()
        groups += epochs.ready()
        assert groups == expected


def test_nothing_is_ready_while_one_origin_is_silent() -> None:
    epochs: Epochs[str] = Epochs(("land/0", "land/1"), done=0, plain=-1)
    epochs.add(0, "land/0", 0, 1, "a")
    epochs.tick(1, "land/0", Tick(slot=1, at=1))
    assert list(epochs.ready()) == []
    assert epochs.first_waiting() == 0
    epochs.tick(2, "land/1", Tick(slot=1, at=2))
    assert list(epochs.ready()) == [(["a"], Tick(slot=1, at=2))]
    assert epochs.first_waiting() is None


def test_a_tick_of_a_stranger_changes_nothing() -> None:
    epochs: Epochs[str] = Epochs(("land/0",), done=0, plain=-1)
    epochs.tick(0, "distil/9", Tick(slot=9, at=9))
    epochs.tick(1, None, Tick(slot=9, at=9))
    assert list(epochs.ready()) == []


def test_what_land_has_forgotten_is_gathered_from_all_its_partitions() -> None:
    epochs: Epochs[str] = Epochs(ORIGINS[:2], done=0, plain=-1)
    run = Erasure(what="run", value="r")
    epochs.tick(0, ORIGINS[0], Tick(slot=1, at=1, erase=run, erased=("b", "c")))
    epochs.tick(1, ORIGINS[1], Tick(slot=1, at=1, erase=run, erased=("a",)))
    assert list(epochs.ready()) == [([], Tick(slot=1, at=1, erase=run, erased=("a", "b", "c")))]
