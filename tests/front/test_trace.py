"""fluvial trace: every station of one event."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.cli.trace import TOLD
from fluvial.processors.expel import step
from fluvial.schemas.alert import Alert
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.dead_letter import DeadLetter, dead_letter_id
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import ALERTS, CLUSTERS, DEAD_LETTERS, DRIFT, INSIGHT_OPS, LAND, TOOL_CALLS
from fluvial.sinks.episodes import DIMENSIONS, EpisodeStore
from fluvial.sinks.insights import Insights
from fluvial.streams.log_reader import LogReader
from fluvial.streams.trace import AROUND, Station, Trace

T0 = 1_692_308_040_000_000
CALL = ToolCall(source="dex", run_id="run-1", tool="swap", seq=3, chain="ethereum", token_pair="USDC/WETH")
ID = event_id_of(CALL)
OTHER = msgspec.structs.replace(CALL, seq=4)


def episode(**changed: Any) -> Episode:
    whole = Episode(
        id=ID,
        source="dex",
        run_id="run-1",
        tool="swap",
        status="error",
        started_at=T0,
        text="It slipped.",
        reflection_source="agent",
        embedding_model="m",
        log_partition=2,
        log_offset=1,
        chain="ethereum",
        token_pair="USDC/WETH",
    )
    return msgspec.structs.replace(whole, **changed)


KEPT = {"content": "A low tolerance fails.", "category": "slippage", "state": "active", "confidence": 0.7}


def drift(event_id: str, *, tool: str = "swap", at: int = T0) -> DriftEvent:
    return DriftEvent(
        event_id=event_id,
        fingerprint="f",
        key=MetricKey(tool=tool, metric="slippage_bps", chain="ethereum", token_pair="USDC/WETH"),
        direction="up",
        polarity="degrade",
        before=Level(mean=6.0, median=6.0, n=800),
        after=Level(mean=84.0, median=80.0, n=40),
        effect_sigma=3.0,
        rel_change=13.0,
        change_time=ChangeTime(est=at, lo=at - 1, hi=at + 1),
        detected_at=at + 10,
        severity="critical",
    )


def cluster(name: str, *event_ids: str) -> Cluster:
    rows = tuple(Row(event_id=event_id, run_id="run-1", failed=True, at=T0) for event_id in event_ids)
    return Cluster(id=name, source="dex", tool="swap", window_start=T0 - 10, window_end=T0 + 10, rows=rows)


def op(name: str, kind: Any, insight_id: str, *evidence: str) -> InsightOp:
    return InsightOp(
        op_id=name, op=kind, reason="episode", actor="distil", at=T0, insight_id=insight_id, evidence=evidence
    )


def stations(river: Any, event_id: str, landed: Episode | None = None) -> list[Station]:
    """What a trace tells, with one episode and one insight in the stores."""
    with LogReader(river.broker) as reader:
        trace = Trace(reader, {event_id: landed}.get, lambda ids: {"i-1": KEPT} if "i-1" in ids else {}, river.prefix)
        return list(trace.stations(event_id))


def names(found: list[Station]) -> list[str]:
    return [station["station"] for station in found]


def test_an_event_is_followed_from_the_log_to_the_alert(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [OTHER, CALL, Tick(slot=1, at=1)], 2)
    dry_river.write(CLUSTERS, [cluster("c-1", "x", ID), cluster("c-2", "x"), Tick(slot=1, at=1)], 1)
    dry_river.write(INSIGHT_OPS, [op("o-1", "ADD", "i-1", "x", ID), op("o-2", "UPVOTE", "i-2", "x")])
    dry_river.write(INSIGHT_OPS, [op("o-3", "UPVOTE", "i-1", ID), op("o-4", "ADD", "i-3", ID)])
    dry_river.write(DRIFT, [drift("d-1"), drift("d-2", tool="quote"), drift("d-3", at=T0 - 2 * AROUND)], 3)
    told = [
        Alert(alert_id=f"a-{d.event_id}", severity="critical", summary="s", at=T0, drift=d)
        for d in (drift("d-1"), drift("d-3", at=T0 - 2 * AROUND))
    ]
    dry_river.write(ALERTS, told)
    found = stations(dry_river, ID, episode())
    assert names(found) == ["published", "landed", "clustered", "learnt", "learnt", "drifted", "alerted"]
    published, landed, clustered, lesson, unkept, drifted, alerted = found
    assert (published["topic"], published["partition"], published["offset"]) == (f"{dry_river.prefix}tool-calls", 2, 1)
    assert published["time"] > 1_700_000_000_000_000
    assert (landed["tool"], landed["status"], landed["text"], landed["redactions"]) == (
        "swap",
        "error",
        "It slipped.",
        0,
    )
    assert (clustered["id"], clustered["n"], clustered["failures"]) == ("c-1", 2, 2)
    assert lesson == {
        "station": "learnt",
        "id": "i-1",
        **KEPT,
        "evidence_for": ["ADD", "UPVOTE"],
    }
    assert (unkept["id"], unkept["state"]) == ("i-3", "not kept yet")
    assert (drifted["id"], drifted["metric"], drifted["before"], drifted["after"]) == ("d-1", "slippage_bps", 6.0, 84.0)
    assert (alerted["id"], alerted["drift"]) == ("a-d-1", "d-1")


def test_an_event_that_land_has_not_come_to_waits(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [OTHER] * 3 + [CALL], 1)
    dry_river.reach(LAND, Progress(resume=2), [1])
    found = stations(dry_river, ID)
    assert names(found) == ["published", "waiting"]
    assert (found[0]["partition"], found[0]["offset"], found[1]["hop"]) == (1, 3, "land")


def test_an_event_that_died_is_found_with_the_reason(dry_river: Any) -> None:
    topic = f"{dry_river.prefix}tool-calls"
    dry_river.write(TOOL_CALLS, [OTHER, CALL], 3)
    letter = DeadLetter(
        id=dead_letter_id(topic, 3, 1),
        hop="land",
        topic=topic,
        partition=3,
        offset=1,
        reason="args are too deep",
        value="{}",
        at=T0,
        event_id=ID,
    )
    dry_river.write(DEAD_LETTERS, [letter])
    found = stations(dry_river, ID)
    assert names(found) == ["published", "dead letter"]
    assert found[0]["offset"] == 1
    assert (found[1]["hop"], found[1]["reason"], found[1]["id"]) == ("land", "args are too deep", letter.id)


def test_an_event_whose_episode_another_machine_keeps_is_found_in_the_log(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [CALL, OTHER], 0)
    dry_river.reach(LAND, Progress(resume=2), [0])
    found = stations(dry_river, ID)
    assert names(found) == ["published", "handled"]


def test_an_id_with_characters_that_json_escapes_is_found(dry_river: Any) -> None:
    strange = 'quote " and \\ and 数'
    dry_river.write(TOOL_CALLS, [msgspec.structs.replace(CALL, event_id=strange)], 0)
    dry_river.write(CLUSTERS, [cluster("c-1", strange)])
    found = stations(dry_river, strange, episode(id=strange, log_partition=0, log_offset=0))
    assert names(found) == ["published", "landed", "clustered"]


def test_an_event_that_nobody_knows_has_no_station(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [CALL])
    assert stations(dry_river, "nobody") == []


def test_bytes_in_the_log_that_are_no_call_do_not_stop_the_search(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [b"not json", b"", CALL])
    assert names(stations(dry_river, ID)) == ["published", "waiting"]


class TestCommand:
    """The command on real stores."""

    @pytest.fixture
    def data(self, tmp_path: Path) -> Path:
        vectors = np.eye(1, DIMENSIONS, dtype=np.float32)
        EpisodeStore.create(tmp_path / "episodes").merge([episode()], vectors)
        insights = Insights(tmp_path / "insights.duckdb", step, lambda texts: np.repeat(vectors, len(texts), axis=0))
        add = op("o-1", "ADD", "i-1", ID)
        add = msgspec.structs.replace(add, content="A low tolerance fails.", category="slippage", kind="tool")
        insights.commit(insights.fold([(0, add)]), Progress(resume=1))
        insights.close()
        return tmp_path

    @pytest.fixture
    def river(self, dry_river: Any) -> Any:
        dry_river.write(TOOL_CALLS, [OTHER, CALL], 2)
        dry_river.write(INSIGHT_OPS, [op("o-1", "ADD", "i-1", ID)])
        return dry_river

    def run(self, river: Any, data: Path, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["trace", "--data", str(data), *arguments], env=river.environment)

    def test_with_json_there_is_one_object_a_station(self, river: Any, data: Path) -> None:
        result = self.run(river, data, ID, "--json")
        assert result.exit_code == 0, result.output
        published, landed, lesson = map(msgspec.json.decode, result.stdout.splitlines())
        assert names([published, landed, lesson]) == ["published", "landed", "learnt"]
        assert landed["id"] == ID
        assert (lesson["id"], lesson["content"], lesson["state"]) == ("i-1", "A low tolerance fails.", "candidate")

    def test_people_see_one_line_a_station(self, river: Any, data: Path) -> None:
        result = self.run(river, data, ID)
        published, landed, lesson = result.stdout.splitlines()
        assert published.startswith(f"published   {river.prefix}tool-calls[2]@1, 20")
        assert landed == (
            "landed      dex run-1 swap ethereum USDC/WETH error, 2023-08-17 21:34:00Z, 0 redacted: It slipped."
        )
        assert lesson.startswith("learnt      candidate 0.60: A low tolerance fails. (evidence for ADD; i-1)")

    def test_an_unknown_id_is_said(self, river: Any, data: Path) -> None:
        result = self.run(river, data, "nobody")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "No event is called nobody. `fluvial search` shows the ids of events that landed.\n"

    def test_where_nothing_was_stored_yet_the_log_answers(self, river: Any, tmp_path: Path) -> None:
        result = self.run(river, tmp_path / "nothing", ID)
        assert [line.split()[0] for line in result.stdout.splitlines()] == ["published", "waiting"]
        assert list(tmp_path.iterdir()) == []

    def test_insights_that_cannot_be_read_are_said(self, river: Any, data: Path) -> None:
        (data / "insights.duckdb").write_bytes(b"junk" * 5_000)
        result = self.run(river, data, ID)
        assert result.exit_code == 0, result.output
        assert result.stderr.startswith(f"{data / 'insights.duckdb'} cannot be read (")
        assert result.stdout.splitlines()[-1] == "learnt      unreadable (evidence for ADD; i-1)"

    def test_a_broker_that_does_not_answer_is_said(self, data: Path) -> None:
        result = CliRunner().invoke(app, ["trace", ID, "--data", str(data), "--broker", "127.0.0.1:1"])
        assert result.exit_code == 1
        assert str(result.exception).startswith("Kafka at 127.0.0.1:1 does not answer")


@pytest.mark.parametrize("name", TOLD)
def test_every_station_can_be_told_to_a_person(name: str) -> None:
    fields = {
        **dict.fromkeys(("topic", "hop", "reason", "id", "source", "tool", "text", "state", "content"), "x"),
        **dict.fromkeys(("metric", "polarity", "severity", "summary"), "y"),
        **dict.fromkeys(("partition", "offset", "redactions", "n", "failures", "before", "after", "confidence"), 1),
        **dict.fromkeys(("time", "started_at", "window_start", "window_end", "changed_at"), T0),
        "evidence_for": ["ADD"],
    }
    assert TOLD[name](fields)
