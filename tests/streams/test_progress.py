"""How far the hops have come, read from the ends of their state topics."""

import time
from typing import Any

import pytest
from kafka import TopicPartition

from fluvial.schemas.codec import encode
from fluvial.schemas.progress import PROGRESS_KEY, Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import HOPS, KEEP, LAND, TOOL_CALLS, WATCH
from fluvial.streams.admin import BrokerAway
from fluvial.streams.log_reader import LogReader, TopicMissing
from fluvial.streams.progress import LOOK, HopStatus, lags, marks, status

CALL = ToolCall(source="shop", run_id="1", tool="search")


def test_the_last_marker_of_a_partition_counts(dry_river: Any) -> None:
    for read in range(1, 6):
        dry_river.reach(LAND, Progress(resume=read * 10, read=read), [0])
    dry_river.reach(LAND, Progress(resume=7, read=7), [3])
    with LogReader(dry_river.broker) as reader:
        found = marks(reader, [LAND], dry_river.prefix)
    assert {place: mark.progress.resume for place, mark in found.items()} == {
        ("land", 0): 50,
        ("land", 1): 0,
        ("land", 2): 0,
        ("land", 3): 7,
    }
    assert found["land", 1].at is None
    assert (found["land", 0].at or 0) > 1_700_000_000_000_000


def test_what_an_aborted_transaction_wrote_is_not_seen(dry_river: Any) -> None:
    dry_river.reach(LAND, Progress(resume=5), [0])
    for _ in range(4):
        marker = (PROGRESS_KEY, encode(Progress(resume=99)))
        dry_river.write(LAND.state_topic, [(b"table\x1frow", b"{}")] * 40 + [marker], abort=True)
    with LogReader(dry_river.broker) as reader:
        assert marks(reader, [LAND], dry_river.prefix)["land", 0].progress.resume == 5


def test_a_marker_far_before_the_end_is_found(dry_river: Any) -> None:
    dry_river.reach(LAND, Progress(resume=5), [0])
    dry_river.write(LAND.state_topic, [(b"table\x1f%d" % row, b"{}") for row in range(1_000)])
    with LogReader(dry_river.broker) as reader:
        assert marks(reader, [LAND], dry_river.prefix)["land", 0].progress.resume == 5


def test_lag_counts_records_and_neither_ticks_nor_transaction_marks(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [CALL] * 3)
    dry_river.write(TOOL_CALLS, [CALL, Tick(slot=1, at=1), CALL, Tick(slot=2, at=2)])
    dry_river.write(TOOL_CALLS, [CALL] * 2, partition=2)
    dry_river.reach(LAND, Progress(resume=2), [0])
    with LogReader(dry_river.broker) as reader:
        found = marks(reader, [LAND], dry_river.prefix)
        assert lags(reader, [LAND], found, dry_river.prefix) == {
            ("land", 0): 3,
            ("land", 1): 0,
            ("land", 2): 2,
            ("land", 3): 0,
        }


def test_a_hop_that_has_handled_all_has_no_lag_though_a_commit_mark_follows(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [CALL] * 3)
    dry_river.reach(LAND, Progress(resume=3), [0])
    with LogReader(dry_river.broker) as reader:
        found = marks(reader, [LAND], dry_river.prefix)
        assert lags(reader, [LAND], found, dry_river.prefix)["land", 0] == 0


def test_far_behind_the_rest_is_counted_by_offsets(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [Tick(slot=slot, at=slot) for slot in range(1, 101)])
    dry_river.write(TOOL_CALLS, [CALL] * LOOK)
    with LogReader(dry_river.broker) as reader:
        waiting = lags(reader, [LAND], {}, dry_river.prefix)["land", 0]
    marks_of_two_transactions = 2
    assert waiting == LOOK - 100 - 1 + (100 + marks_of_two_transactions)


def test_a_hop_is_the_sum_of_its_partitions(dry_river: Any) -> None:
    for partition in range(4):
        counts = {"done": 7 - partition, "dead": 1, "duplicate": 2, "late": partition}
        progress = Progress(resume=1, read=10, emitted=7 + partition, **counts)
        dry_river.reach(WATCH, progress, [partition])
    with LogReader(dry_river.broker) as reader:
        found = status(reader, dry_river.prefix)
    assert [hop.hop for hop in found] == list(HOPS)
    watch = found[list(HOPS).index("watch")]
    sums = {"read": 40, "emitted": 34, "done": 22, "dead": 4, "duplicate": 8, "late": 6}
    assert watch == HopStatus(hop="watch", **sums, lag=0, last_progress=watch.last_progress)
    assert watch.unaccounted == 0
    assert found[0].last_progress is None


def test_a_river_that_was_never_made_is_said(kafka: str) -> None:
    with LogReader(kafka) as reader, pytest.raises(TopicMissing, match=r"no topic nowhere-spans-state.*`fluvial up`"):
        status(reader, "nowhere-")


def test_a_broker_that_does_not_answer_is_said_in_time() -> None:
    with pytest.raises(BrokerAway, match=r"Kafka at 127\.0\.0\.1:1 does not answer"):
        LogReader("127.0.0.1:1", timeout=0.5)


def test_records_are_picked_at_their_places(dry_river: Any) -> None:
    dry_river.write(KEEP.source, [(b"key", b"%d" % number) for number in range(1_200)])
    where = TopicPartition(KEEP.source.named(dry_river.prefix), 0)
    with LogReader(dry_river.broker) as reader:
        found = {
            r.offset: r.value for r in reader.at([(where, 1_100), (where, 3), (where, 3), (where, 700), (where, 9_999)])
        }
    assert found == {3: b"3", 700: b"700", 1_100: b"1100"}


def test_a_read_that_never_comes_to_its_end_is_given_up(dry_river: Any) -> None:
    where = TopicPartition(KEEP.source.named(dry_river.prefix), 0)
    with LogReader(dry_river.broker, timeout=0.6) as reader, pytest.raises(BrokerAway, match="took too long"):
        list(reader.read({where: (0, 10)}))


def test_a_read_takes_as_long_as_the_broker_hands_out_and_the_callers_time_does_not_count(dry_river: Any) -> None:
    dry_river.write(KEEP.source, [b"%d" % number for number in range(2_500)])
    where = TopicPartition(KEEP.source.named(dry_river.prefix), 0)
    with LogReader(dry_river.broker, timeout=0.6) as reader:
        read = 0
        for record in reader.read(reader.spans([where])):
            read += 1
            if record.offset == 0:
                time.sleep(0.7)
    assert read == 2_500
