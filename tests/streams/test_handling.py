"""From messages to turns: what is read, what is refused, and where a turn ends."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from aiokafka import ConsumerRecord

from fluvial.schemas.codec import encode
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import INSIGHT_OPS, KEEP, LAND, MAX_RECORD_BYTES, SPANS
from fluvial.schemas.types import EARLIEST, LATEST
from fluvial.streams.epochs import Epochs
from fluvial.streams.handling import FARTHEST_AHEAD, Handling, Item
from fluvial.streams.life import Life
from fluvial.streams.partition import TICK_HEADER, Partition
from fluvial.streams.state import State
from fluvial.streams.turn import Turn

NOW_MS = 1_750_000_000_000
CALL = encode(ToolCall(source="s", run_id="r", tool="t"))


class Seen(Handling):
    """Remembers what it was given."""

    plan = LAND

    def __init__(self) -> None:
        self.life = Life()
        self.given: list[Item] = []

    async def handle(self, turn: Turn, items: Sequence[Item]) -> None:
        self.given += items


class Foreign(Seen):
    plan = SPANS
    takes_ticks = False


class Kept(Seen):
    plan = KEEP


class Place:
    """A partition without a broker."""

    number = 0

    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def turn(self, muted: bool = False) -> Turn:
        turn = Turn("land", 0, State(), self.progress)
        turn.muted = muted
        return turn


def message(
    offset: int, value: bytes = CALL, headers: Sequence[tuple[str, Any]] = (), timestamp: int = NOW_MS
) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, timestamp, 0, b"key", value, None, 3, len(value), tuple(headers))


def tick(offset: int, slot: int, at: int = NOW_MS * 1_000, erase: Erasure | None = None) -> ConsumerRecord:
    return message(offset, encode(Tick(slot=slot, at=at, erase=erase)), [TICK_HEADER])


async def turns_of(hop: Seen, messages: list[ConsumerRecord], slot: int = 0) -> list[Progress]:
    """What each turn would commit."""
    place = Place(Progress(resume=0, slot=slot))
    committed = []
    async for turn in hop.turns(cast(Partition, place), None, messages):
        place.progress = turn.progress
        committed.append(turn.progress)
    return committed


async def test_a_turn_ends_at_an_erasure_with_everything_before_it_handled() -> None:
    hop = Seen()
    run = Erasure(what="run", value="r")
    first, second = await turns_of(hop, [message(0), tick(1, 5, erase=run), message(2)])
    assert (first.resume, first.read) == (2, 1)
    assert (second.resume, second.read) == (3, 2)


async def test_an_erasure_that_a_later_tick_has_overtaken_commits_nothing_unhandled() -> None:
    hop = Seen()
    run = Erasure(what="run", value="r")
    (only,) = await turns_of(hop, [message(0), message(1), tick(2, 5, erase=run)], slot=9)
    assert (only.resume, only.read, len(hop.given)) == (3, 2, 2)


@pytest.mark.parametrize(("timestamp", "micros"), [(-(2**60), EARLIEST), (2**60, LATEST), (NOW_MS, NOW_MS * 1_000)])
def test_the_time_of_a_record_is_one_of_the_years_1_to_9999(timestamp: int, micros: int) -> None:
    arrival = Seen()._read(message(0, timestamp=timestamp))
    assert not isinstance(arrival, Tick)
    assert (arrival.timestamp, arrival.problem) == (micros, None)


def refusal(item: Item) -> str:
    assert not isinstance(item, Tick)
    assert item.problem is not None
    return item.problem


@pytest.mark.parametrize("slot", [-1, 2**62])
def test_a_slot_beyond_all_time_is_no_tick(slot: int) -> None:
    assert "slot" in refusal(Seen()._read(tick(0, slot)))


def test_a_tick_far_ahead_of_its_own_record_is_refused() -> None:
    soon, late = NOW_MS * 1_000 + FARTHEST_AHEAD, NOW_MS * 1_000 + FARTHEST_AHEAD + 1
    assert isinstance(Seen()._read(tick(0, 7, at=soon)), Tick)
    assert "more than a day ahead" in refusal(Seen()._read(tick(0, 7, at=late)))


def test_no_tick_is_taken_from_a_topic_that_only_agents_write_to() -> None:
    refusal(Foreign()._read(tick(0, 7)))


def test_what_unpacks_to_more_than_a_record_may_have_is_refused_unread() -> None:
    assert refusal(Seen()._read(message(0, b"x" * (MAX_RECORD_BYTES + 1)))).startswith("too long")


@pytest.mark.parametrize(
    "headers",
    [
        [("origin", None)],
        [("origin", b"watch/0"), ("epoch", b"99999999999999999999999999")],
        [("origin", b"watch/0"), ("epoch", b"x")],
        [("origin", b"sea/9"), ("epoch", b"1")],
        [("origin", b"\xff"), ("epoch", b"1")],
    ],
)
def test_headers_that_no_hop_writes_make_a_dead_letter(headers: list[tuple[str, Any]]) -> None:
    epochs: Epochs[Any] = Epochs(("watch/0",), done=0, plain=-1)
    value = b'{"type":"insight_op","op_id":"o","op":"ARCHIVE","insight_id":"i","reason":"operator","actor":"a","at":1}'
    Kept()._sort_in(epochs, message(0, value, headers))
    epochs.tick(1, "watch/0", Tick(slot=5, at=5))
    (([item], _),) = epochs.ready()
    assert "hops' own" in refusal(item), INSIGHT_OPS.name


@pytest.mark.parametrize(
    ("origin", "foreign"),
    [
        (b"join/0", False),
        (b"spans/17", False),
        (b"checkout", True),
        (b"land/0", True),
        (b"join/", True),
        (b"\xff/0", True),
        (b"operator", True),
        (None, True),
    ],
)
def test_only_the_hops_that_write_to_a_topic_are_origins_of_its_records(origin: bytes | None, foreign: bool) -> None:
    item = Seen()._read(message(0, headers=[("origin", origin)]))
    assert not isinstance(item, Tick)
    assert item.foreign == foreign


def test_a_tick_of_a_hop_ends_the_epoch_that_its_records_are_in() -> None:
    epochs: Epochs[Any] = Epochs(("watch/0",), done=0, plain=-1)
    hop = Kept()
    value = b'{"type":"insight_op","op_id":"o","op":"ARCHIVE","insight_id":"i","reason":"operator","actor":"a","at":1}'
    for offset, slot in ((0, 5), (2, 9)):
        sent = encode(Tick(slot=slot, at=slot))
        hop._sort_in(epochs, message(offset, sent, [TICK_HEADER, ("origin", b"watch/0"), ("epoch", b"%d" % slot)]))
        hop._sort_in(epochs, message(offset + 1, value, [("origin", b"watch/0"), ("epoch", b"%d" % slot)]))
    before, (items, tick) = epochs.ready()
    assert (before[1].slot, tick.slot, [item.problem for item in items]) == (5, 9, [None])
