"""Where a replay ends, what it leaves, and when its digest has to be the river's."""

import time
from typing import Any

import pytest
from kafka import KafkaConsumer

from fluvial.schemas.codec import encode
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import DRIFT, TOOL_CALLS
from fluvial.streams.admin import ensure_topics, groups, topic_names
from fluvial.streams.log_reader import LogReader
from fluvial.streams.replay import (
    DERIVED,
    REPLAYED,
    NothingToReplay,
    clean,
    goal,
    leftovers,
    new_prefix,
    why_not_comparable,
)

CALL = ToolCall(source="s", run_id="r", tool="t")


def tick(river: Any, slot: int, flush: bool = False, partitions: range = range(4)) -> None:
    for partition in partitions:
        river.write(TOOL_CALLS, [Tick(slot=slot, at=slot, flush=flush)], partition)


def test_it_takes_the_hops_behind_tool_calls_and_what_they_write() -> None:
    assert [plan.name for plan in REPLAYED] == ["land", "watch", "gather", "distil", "keep", "notify"]
    names = {topic.name for topic in DERIVED}
    assert "tool-calls" not in names
    assert {"episodes", "clusters", "drift", "insight-ops", "alerts", "dead-letters", "land-state"} <= names


def test_it_ends_at_the_last_tick_that_every_partition_has(dry_river: Any) -> None:
    with LogReader(dry_river.broker) as reader:
        with pytest.raises(NothingToReplay, match="has no ticks yet"):
            goal(reader, dry_river.prefix)
        tick(dry_river, 10)
        dry_river.write(TOOL_CALLS, [CALL] * 3, 1)
        tick(dry_river, 20)
        tick(dry_river, 30, partitions=range(2))
        dry_river.write(TOOL_CALLS, [CALL], 0)
        found = goal(reader, dry_river.prefix)
    assert found.slot == 20
    assert found.ends[2] < found.ends[0] < found.ends[1]
    assert found.reached([Progress(resume=1, slot=20), Progress(resume=1, slot=30)])
    assert not found.reached([Progress(resume=1, slot=20), Progress(resume=1, slot=19)])


def test_memories_are_compared_where_nothing_was_published_after_the_last_drain(dry_river: Any) -> None:
    def reached(slot: int, flushed: int) -> None:
        marker = (PROGRESS_KEY, encode(Progress(resume=1, slot=slot, flushed=flushed)))
        for plan in REPLAYED:
            for partition in range(plan.source.partitions):
                dry_river.write(plan.state_topic, [marker], partition)

    with LogReader(dry_river.broker) as reader:
        dry_river.write(TOOL_CALLS, [CALL], 1)
        tick(dry_river, 20)
        reached(20, 0)
        assert why_not_comparable(reader, dry_river.prefix, goal(reader, dry_river.prefix)) == "it was never drained"
        tick(dry_river, 30, flush=True)
        tick(dry_river, 40)
        reached(40, 30)
        end = goal(reader, dry_river.prefix)
        assert why_not_comparable(reader, dry_river.prefix, end) == ""
        dry_river.write(TOOL_CALLS, [CALL], 3)
        assert "were published since" in why_not_comparable(reader, dry_river.prefix, end)
        tick(dry_river, 50, flush=True)
        reached(50, 50)
        assert "meanwhile" in why_not_comparable(reader, dry_river.prefix, end)


def test_what_an_interrupted_replay_left_is_found_and_deleted_but_not_one_that_runs(
    kafka: str, topic_prefix: str
) -> None:
    dead = new_prefix(kafka, topic_prefix)
    ensure_topics(kafka, [DRIFT], dead)
    alive = new_prefix(kafka, topic_prefix)
    assert alive != dead
    ensure_topics(kafka, [DRIFT], alive)
    consumer = KafkaConsumer(DRIFT.named(alive), bootstrap_servers=kafka, group_id=f"{alive}fluvial-notify")
    try:
        consumer.poll(5_000)
        assert leftovers(kafka, topic_prefix) == set(), "they have just begun"
        assert leftovers(kafka, topic_prefix, older_than=-60.0) == {dead}
        clean(kafka, dead)
    finally:
        consumer.close()
    names = topic_names(kafka)
    assert (DRIFT.named(dead) in names, DRIFT.named(alive) in names) == (False, True)
    assert DRIFT.named(topic_prefix) in names
    clean(kafka, alive)
    assert groups(kafka, alive) == {}


def test_a_prefix_names_the_time_at_which_the_replay_began(kafka: str, topic_prefix: str) -> None:
    found = new_prefix(kafka, topic_prefix)
    assert abs(int(found.removeprefix(f"{topic_prefix}replay-").removesuffix("-"), 16) - time.time()) < 60
    with pytest.raises(ValueError, match="longer than 64"):
        new_prefix(kafka, "x" * 60)
