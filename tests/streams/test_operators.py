"""What operators wrote keeps its place in every replay."""

from typing import Any

from fluvial.schemas.codec import decode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import INSIGHT_OPS, KEEP
from fluvial.streams.epochs import OPERATOR, Epochs
from fluvial.streams.log_reader import LogReader
from fluvial.streams.operators import Copy, operators_records

ORIGINS = [f"{hop}/{number}" for hop in ("watch", "distil") for number in range(4)]


def op(name: str) -> InsightOp:
    return InsightOp(op_id=name, op="DIRECTIVE", reason="operator", actor="ops", at=1, insight_id=name, content="c")


def copies(river: Any) -> list[Copy]:
    with LogReader(river.broker) as reader:
        return list(operators_records(reader, river.prefix))


def tick(river: Any, slot: int, *origins: str) -> None:
    for origin in origins or ORIGINS:
        river.write(INSIGHT_OPS, [Tick(slot=slot, at=slot)], origin=origin, epoch=slot)


def told(found: list[Copy]) -> list[tuple[str, int]]:
    return [(decode(one.value or b"", InsightOp).op_id, int(dict(one.headers)["epoch"])) for one in found]


def test_a_record_belongs_to_the_last_tick_that_every_origin_had_passed_when_it_came(dry_river: Any) -> None:
    dry_river.write(INSIGHT_OPS, [op("first")])
    tick(dry_river, 10)
    dry_river.write(INSIGHT_OPS, [op("hops")], origin="distil/2", epoch=10)
    dry_river.write(INSIGHT_OPS, [op("second")])
    tick(dry_river, 20, *ORIGINS[1:])
    dry_river.write(INSIGHT_OPS, [op("third")])
    tick(dry_river, 20, ORIGINS[0])
    dry_river.write(INSIGHT_OPS, [op("fourth")])
    found = copies(dry_river)
    assert told(found) == [("first", 0), ("second", 10), ("third", 10), ("fourth", 20)]
    assert {dict(one.headers)["origin"] for one in found} == {OPERATOR.encode()}


def test_a_copy_is_copied_with_the_epoch_it_brought(dry_river: Any) -> None:
    dry_river.write(INSIGHT_OPS, [op("copied")], origin=OPERATOR, epoch=30)
    tick(dry_river, 10)
    dry_river.write(INSIGHT_OPS, [op("new")])
    assert told(copies(dry_river)) == [("copied", 30), ("new", 10)]


def test_what_is_to_be_a_dead_letter_is_one_again(dry_river: Any) -> None:
    dry_river.write(INSIGHT_OPS, [op("forged")], origin="land/0", epoch=1)
    (found,) = copies(dry_river)
    assert dict(found.headers) == {"origin": b"land/0", "epoch": b"1"}


def test_a_copy_is_handled_where_the_original_was_whatever_comes_first_in_the_log() -> None:
    """The log of a replay begins with the copies; the hops' records and ticks follow."""
    epochs: Epochs[str] = Epochs(["watch/0"], 0, -1)
    epochs.add(0, OPERATOR, 20, 5, "operator's")
    epochs.add(1, "watch/0", 0, 9, "first")
    epochs.tick(2, "watch/0", Tick(slot=20, at=20))
    epochs.add(3, "watch/0", 20, 9, "second")
    epochs.tick(4, "watch/0", Tick(slot=30, at=30))
    assert [items for items, _ in epochs.ready()] == [["first"], ["operator's", "second"]]


def test_after_a_restart_a_copy_that_was_handled_is_dropped_and_another_is_not() -> None:
    epochs: Epochs[str] = Epochs(["watch/0"], 30, -1)
    epochs.add(0, OPERATOR, 20, 5, "handled")
    epochs.add(1, OPERATOR, 30, 5, "waiting")
    epochs.tick(2, "watch/0", Tick(slot=40, at=40))
    assert [items for items, _ in epochs.ready()] == [["waiting"]]


def test_keep_is_the_one_that_reads_them() -> None:
    assert KEEP.source is INSIGHT_OPS
