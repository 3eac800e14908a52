"""What hops sent is what the hops behind have read or still wait for."""

from typing import Any

import pytest
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.schemas.cluster import Cluster
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import CLUSTERS, DISTIL, GATHER, INSIGHT_OPS, JOIN, KEEP, LAND, TOOL_CALLS, WATCH
from fluvial.streams import balance
from fluvial.streams.balance import Flow, open_flows
from fluvial.streams.log_reader import LogReader
from fluvial.streams.progress import lags, marks

CLUSTER = Cluster(id="c", source="s", tool="t", window_start=0, window_end=1)
CALL = ToolCall(source="s", run_id="r", tool="t")
OP = InsightOp(op_id="o", op="UPVOTE", reason="prediction", actor="distil", at=1, insight_id="i")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "PAUSE_SECONDS", 0.0)


def open_in(river: Any) -> list[Flow]:
    with LogReader(river.broker) as reader:
        return open_flows(reader, river.prefix)


def sent(topic: str, n: int, **fields: Any) -> Progress:
    return Progress(resume=9, emitted=n, sent={topic: n}, **fields)


def test_what_was_read_and_what_waits_is_what_was_sent(dry_river: Any) -> None:
    dry_river.reach(GATHER, sent("clusters", 3), [0])
    dry_river.reach(GATHER, sent("clusters", 2), [1])
    dry_river.write(CLUSTERS, [CLUSTER] * 3, origin="gather/0", epoch=1)
    dry_river.write(CLUSTERS, [CLUSTER, Tick(slot=7, at=7), CLUSTER], 2, origin="gather/1", epoch=7)
    dry_river.reach(DISTIL, Progress(resume=3, slot=5, read=3, done=3), [0])
    assert open_in(dry_river) == []


def test_a_record_that_is_neither_read_nor_waiting_is_missing(dry_river: Any) -> None:
    dry_river.reach(GATHER, sent("clusters", 3), [0])
    dry_river.write(CLUSTERS, [CLUSTER] * 2, origin="gather/0", epoch=1)
    assert open_in(dry_river) == [Flow("clusters", "distil", sent=3, read=0, waiting=2)]
    ended = CliRunner().invoke(app, ["status"], env=dry_river.environment)
    assert (
        "The balance of the topic clusters does not close: 3 sent, distil has read 0 and waits for 2: 1 are missing."
        in ended.stderr
    )


def test_more_than_was_sent_is_told_too(dry_river: Any) -> None:
    dry_river.reach(GATHER, sent("clusters", 1), [0])
    dry_river.reach(DISTIL, Progress(resume=3, read=3, done=3), [0])
    (flow,) = open_in(dry_river)
    assert flow.missing == -2


def test_what_operators_write_is_none_of_the_hops(dry_river: Any) -> None:
    dry_river.reach(WATCH, sent("insight-ops", 1), [0])
    dry_river.reach(DISTIL, sent("insight-ops", 1), [0])
    dry_river.write(INSIGHT_OPS, [OP])
    dry_river.write(INSIGHT_OPS, [OP], origin="watch/0", epoch=1)
    dry_river.write(INSIGHT_OPS, [OP], origin="distil/0", epoch=9)
    dry_river.write(INSIGHT_OPS, [OP], origin="operator", epoch=9)
    dry_river.write(INSIGHT_OPS, [OP])
    dry_river.reach(KEEP, Progress(resume=0, slot=5, plain=0, read=2, done=2, foreign=1))
    assert open_in(dry_river) == []
    with LogReader(dry_river.broker) as reader:
        known = marks(reader, [KEEP], dry_river.prefix)
        assert lags(reader, [KEEP], known, dry_river.prefix) == {("keep", 0): 3}


@pytest.mark.parametrize("origin", ["checkout", "land/0", "join", "join/x", "\ufffd/0"])
def test_an_agents_own_header_origin_makes_no_record_a_hops(dry_river: Any, origin: str) -> None:
    dry_river.reach(JOIN, sent("tool-calls", 1), [0])
    dry_river.write(TOOL_CALLS, [CALL], origin="join/0", epoch=1)
    dry_river.write(TOOL_CALLS, [CALL] * 3, origin=origin, epoch=1)
    assert open_in(dry_river) == []
    dry_river.reach(LAND, Progress(resume=9, read=4, done=4, foreign=3), [0])
    assert open_in(dry_river) == []


def test_counts_of_before_the_topics_were_counted_are_not_judged(dry_river: Any) -> None:
    dry_river.reach(GATHER, Progress(resume=9, emitted=5, sent={"clusters": 2}), [0])
    assert open_in(dry_river) == []


def test_a_hop_that_fills_its_store_again_is_not_judged(dry_river: Any) -> None:
    dry_river.reach(GATHER, sent("clusters", 1, muted_until=100), [0])
    dry_river.reach(DISTIL, Progress(resume=3, read=3, done=3), [0])
    assert open_in(dry_river) == []
