"""fluvial drain, against a river whose hops are played by a thread."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from kafka import TopicPartition
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.schemas.codec import decode
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import (
    AGENT_EVENTS,
    CALL_PARTS,
    HOPS,
    JOIN,
    LAND,
    OTLP_SPANS,
    SPANS,
    TOOL_CALLS,
    HopPlan,
    Topic,
)
from fluvial.streams.admin import BrokerAway
from fluvial.streams.drain import Behind, drain
from fluvial.streams.log_reader import LogReader, LogRecord


def ticks(river: Any, topic: Topic = TOOL_CALLS) -> list[tuple[int, Tick]]:
    """Partition and tick of every tick in a topic."""
    with LogReader(river.broker) as reader:
        spans = reader.spans(TopicPartition(topic.named(river.prefix), p) for p in range(topic.partitions))
        found: list[LogRecord] = [record for record in reader.read(spans) if record.is_tick]
    return [(r.partition.partition, decode(r.value or b"", Tick)) for r in sorted(found, key=lambda r: r.partition)]


def wait_for_slot(river: Any, above: int = 0) -> int:
    """The slot of the flush tick that drain has written to every partition."""
    for _ in range(100):
        slots = [tick.slot for _, tick in ticks(river) if tick.slot > above]
        if len(slots) == TOOL_CALLS.partitions:
            return slots[0]
        time.sleep(0.1)
    raise AssertionError("no flush tick came")


def in_thread(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def run(river: Any, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["drain", *arguments], env=river.environment)


def test_it_returns_when_every_partition_of_every_hop_has_flushed(dry_river: Any) -> None:
    done: list[str] = []

    def hops() -> None:
        slot = wait_for_slot(dry_river)
        for plan in HOPS.values():
            done.append(plan.name)
            dry_river.reach(plan, Progress(resume=1, slot=slot, flushed=slot))

    thread = in_thread(hops)
    result = run(dry_river, "--timeout", "30", "--json")
    assert done == list(HOPS)
    thread.join()
    assert result.exit_code == 0
    answer = msgspec.json.decode(result.stdout)
    assert answer["drained"] is True and 0 < answer["seconds"] < 30


def test_the_flush_tick_is_in_every_partition_and_later_than_what_land_has_seen(dry_river: Any) -> None:
    future = time.time_ns() // 1_000_000 + 3_600_000
    dry_river.reach(LAND, Progress(resume=1, slot=future), [2])
    with pytest.raises(Behind):
        drain(dry_river.broker, 0.0, dry_river.prefix)
    tick = Tick(slot=future + 1, at=(future + 1) * 1_000, flush=True)
    assert ticks(dry_river) == [(partition, tick) for partition in range(TOOL_CALLS.partitions)]


def test_a_flush_tick_that_a_later_tick_overtook_is_sent_again(dry_river: Any) -> None:
    def hops() -> None:
        slot = wait_for_slot(dry_river)
        dry_river.reach(LAND, Progress(resume=1, slot=slot, flushed=slot), [0, 1, 2])
        dry_river.reach(LAND, Progress(resume=1, slot=slot + 1), [3])
        again = wait_for_slot(dry_river, above=slot)
        assert again > slot + 1
        for plan in HOPS.values():
            dry_river.reach(plan, Progress(resume=1, slot=again, flushed=again))

    thread = in_thread(hops)
    drain(dry_river.broker, 30.0, dry_river.prefix)
    thread.join()
    assert len(ticks(dry_river)) == 2 * TOOL_CALLS.partitions


def test_it_says_which_hops_are_behind_and_by_how_much(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [ToolCall(source="s", run_id="r", tool="t")] * 5)
    result = run(dry_river, "--timeout", "0.5")
    assert result.exit_code == 1
    assert isinstance(result.exception, Behind)
    assert str(result.exception) == (
        "Not drained after 0.5 s; behind: land (lag 5); after it: watch, gather, distil, keep, notify. "
        "`fluvial status` shows whether the workers run."
    )


def test_what_came_in_foreign_formats_is_received_before_anything_is_flushed(dry_river: Any) -> None:
    dry_river.write(OTLP_SPANS, [b"spans"] * 2, partition=3)
    dry_river.write(AGENT_EVENTS, [b"{}"])
    with pytest.raises(Behind, match=r"behind: spans \(lag 2\), events \(lag 1\); after it: join, land, watch, "):
        drain(dry_river.broker, 0.5, dry_river.prefix)
    assert ticks(dry_river) == ticks(dry_river, CALL_PARTS) == []


def test_what_comes_meanwhile_is_not_waited_for(dry_river: Any) -> None:
    def hops() -> None:
        slot = wait_for_slot(dry_river)
        for plan in HOPS.values():
            if plan not in (SPANS, JOIN):
                dry_river.reach(plan, Progress(resume=1, slot=slot, flushed=slot))

    def look(waiting: Sequence[HopPlan], handled: int) -> None:
        if SPANS in waiting and not handled:
            dry_river.write(OTLP_SPANS, [b"after"], partition=3)
            dry_river.reach(SPANS, Progress(resume=1, read=1, done=1), [3])

    dry_river.write(OTLP_SPANS, [b"before"], partition=3)
    thread = in_thread(hops)
    drain(dry_river.broker, 30.0, dry_river.prefix, look)
    thread.join()


def test_join_hands_on_what_it_holds_before_the_rest_is_flushed(dry_river: Any) -> None:
    dry_river.write(CALL_PARTS, [b"parts"])
    with pytest.raises(Behind, match=r"behind: join \(lag 1\); after it: land, "):
        drain(dry_river.broker, 0.0, dry_river.prefix)
    assert ticks(dry_river) == []
    assert [partition for partition, tick in ticks(dry_river, CALL_PARTS) if tick.flush] == [0, 1, 2, 3]


def test_people_are_told_how_long_it_took(dry_river: Any) -> None:
    def hops() -> None:
        slot = wait_for_slot(dry_river)
        for plan in HOPS.values():
            dry_river.reach(plan, Progress(resume=1, slot=slot, flushed=slot))

    thread = in_thread(hops)
    result = run(dry_river, "--timeout", "30")
    thread.join()
    assert result.exit_code == 0
    assert result.stdout.startswith("Drained in ")


def test_waiting_costs_a_few_per_cent_of_a_processor(dry_river: Any) -> None:
    with pytest.raises(Behind):
        drain(dry_river.broker, 0.0, dry_river.prefix)  # imports and first connections are not the waiting
    began, used = time.monotonic(), time.process_time()
    with pytest.raises(Behind):
        drain(dry_river.broker, 4.0, dry_river.prefix)
    assert (time.process_time() - used) / (time.monotonic() - began) < 0.15


def test_a_broker_that_does_not_answer_is_said() -> None:
    with pytest.raises(BrokerAway, match=r"127\.0\.0\.1:1"):
        drain("127.0.0.1:1", 5.0)


def test_a_negative_timeout_is_wrong_use() -> None:
    assert CliRunner().invoke(app, ["drain", "--timeout", "-1"]).exit_code == 2
