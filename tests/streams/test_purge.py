"""What an erasure takes out of the topics, on a broker."""

from typing import Any

import pytest

from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import DeadLetter
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import CALL_PARTS, CLUSTERS, DEAD_LETTERS, DISTIL, EPISODES, GATHER, JOIN, WATCH, Topic
from fluvial.streams import purge
from fluvial.streams.dead_letters import dead_letters
from fluvial.streams.life import Life
from fluvial.streams.log_reader import LogReader
from fluvial.streams.purge import cut, purge_later, purge_letters, purge_what_is_due
from fluvial.streams.state import State
from fluvial.streams.turn import Turn

SECRET = Erasure(what="run", value="secret")


def letter(number: int, run: str) -> DeadLetter:
    value = encode({"source": "s", "run_id": run, "n": number}).decode()
    place: dict[str, Any] = {"topic": "tool-calls", "partition": 0, "offset": number}
    return DeadLetter(id=f"letter-{number}", hop="land", reason="why", value=value, at=number, **place)


def left(reader: LogReader, prefix: str) -> list[int]:
    return sorted(one.offset for one in dead_letters(reader, prefix))


def beginnings(reader: LogReader, topic: Topic, prefix: str) -> list[int]:
    return [first for _, (first, _) in sorted(reader.spans(reader.partitions(topic.named(prefix))).items())]


def test_matching_letters_go_and_the_others_stay_once(dry_river: Any) -> None:
    prefix = dry_river.prefix
    runs = ["a", "secret", "b", "secret", "c"]
    dry_river.write(DEAD_LETTERS, [*(letter(n, run) for n, run in enumerate(runs)), b"no letter"])
    with LogReader(dry_river.broker) as reader:
        assert purge_letters(reader, SECRET, prefix) == 2
        assert left(reader, prefix) == [0, 2, 4]
        records = list(reader.read(reader.spans(reader.partitions(DEAD_LETTERS.named(prefix)))))
        assert sum(b"letter-4" in (record.value or b"") for record in records) == 1
        assert not any(b"secret" in (record.value or b"") for record in records)
        assert [record.key for record in records] == [b"key"] * 4
        before = beginnings(reader, DEAD_LETTERS, prefix)
        assert purge_letters(reader, SECRET, prefix) == 0
        assert beginnings(reader, DEAD_LETTERS, prefix) == before


def test_a_purge_that_was_cut_short_leaves_copies_that_nobody_sees_and_the_next_ends_it(
    dry_river: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = dry_river.prefix
    dry_river.write(DEAD_LETTERS, [letter(1, "a"), letter(2, "secret"), letter(3, "b")])

    def killed(broker: str, offsets: object) -> None:
        raise ConnectionError("killed")

    with LogReader(dry_river.broker) as reader:
        with monkeypatch.context() as patch, pytest.raises(ConnectionError):
            patch.setattr(purge, "delete_before", killed)
            purge_letters(reader, SECRET, prefix)
        assert left(reader, prefix) == [1, 2, 3]
        assert purge_letters(reader, SECRET, prefix) == 1
        assert left(reader, prefix) == [1, 3]


def test_derived_topics_are_cut_where_the_slowest_reader_is(dry_river: Any) -> None:
    for topic in (EPISODES, CLUSTERS, CALL_PARTS):
        for partition in range(topic.partitions):
            dry_river.write(topic, [b"{}"] * 6, partition)
    dry_river.reach(GATHER, Progress(resume=5))
    dry_river.reach(WATCH, Progress(resume=3), partitions=[0, 1])
    dry_river.reach(DISTIL, Progress(resume=6))
    with LogReader(dry_river.broker) as reader:
        for _ in range(2):
            cut(reader, dry_river.prefix)
            assert beginnings(reader, EPISODES, dry_river.prefix) == [3, 3, 0, 0]
            assert beginnings(reader, CLUSTERS, dry_river.prefix) == [6, 6, 6, 6]
            assert beginnings(reader, CALL_PARTS, dry_river.prefix) == [0, 0, 0, 0]
        dry_river.reach(JOIN, Progress(resume=4))
        cut(reader, dry_river.prefix)
        assert beginnings(reader, CALL_PARTS, dry_river.prefix) == [4, 4, 4, 4]


def test_an_order_waits_in_the_state_until_it_is_committed(dry_river: Any) -> None:
    dry_river.write(DEAD_LETTERS, [letter(1, "secret")])
    state = State()
    turn = Turn("keep", 0, state, Progress(resume=0, slot=4))
    purge_later(turn, Tick(slot=5, at=5, erase=SECRET))
    purge_what_is_due(turn, dry_river.broker, dry_river.prefix, Life())
    later = Turn("keep", 0, state, Progress(resume=0, slot=5))
    with LogReader(dry_river.broker) as reader:
        assert left(reader, dry_river.prefix) == [1]
        purge_what_is_due(later, dry_river.broker, dry_river.prefix, Life())
        assert left(reader, dry_river.prefix) == []
    assert dict(state.table("to-purge", Erasure)) == {}
