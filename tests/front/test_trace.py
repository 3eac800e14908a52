"""fluvial trace: every station of one event."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.cli.trace import TOLD
from fluvial.processors.expel import step
from fluvial.processors.window import Pane
from fluvial.schemas.alert import Alert
from fluvial.schemas.claim import Claim
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.codec import encode
from fluvial.schemas.dead_letter import DeadLetter, dead_letter_id
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.tool_call import ToolCall, event_id_of
from fluvial.schemas.topics import (
    ALERTS,
    CLUSTERS,
    DEAD_LETTERS,
    DRIFT,
    GATHER,
    INSIGHT_OPS,
    KEEP,
    LAND,
    TOOL_CALLS,
    WATCH,
)
from fluvial.sinks.episodes import DIMENSIONS, EpisodeStore
from fluvial.sinks.insights import Insights
from fluvial.streams.log_reader import LogReader
from fluvial.streams.trace import AROUND, Trace
from fluvial.streams.witness import Held, Station, Touch

T0 = 1_692_308_040_000_000
LATE = 4_000_000_000_000_000
"""After everything."""
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


class Memory:
    """Stores with one insight, and what a test puts in."""

    def __init__(self, *episodes: Episode, claims: Sequence[Held] = (), touches: list[Touch] | None = None) -> None:
        self._episodes = episodes
        self._claims = claims
        self._touches = touches

    def episode(self, event_id: str) -> Episode | None:
        return next((one for one in self._episodes if one.id == event_id), None)

    def calls(self, name: str, limit: int) -> list[Episode]:
        return [one for one in self._episodes if name in (one.run_id, one.call_id)][:limit]

    def touches(self, event_ids: Sequence[str], causes: Sequence[str]) -> list[Touch] | None:
        return self._touches

    def claims(self, source: str) -> list[Held]:
        return list(self._claims)

    def insights(self, ids: Sequence[str]) -> dict[str, Station]:
        return {"i-1": KEPT} if "i-1" in ids else {}


def stations(river: Any, event_id: str, landed: Episode | None = None, **memory: Any) -> list[Station]:
    """What a trace tells, with one episode and one insight in the stores."""
    with LogReader(river.broker) as reader:
        trace = Trace(reader, Memory(*([landed] if landed else []), **memory), river.prefix)
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
    dry_river.reach(WATCH, Progress(resume=9, at=LATE))
    found = stations(dry_river, ID, episode(metrics={"gas_gwei": 40.5}))
    assert names(found) == ["published", "landed", "watched", "clustered", "learnt", "learnt", "drifted", "alerted"]
    published, landed, watched, clustered, lesson, unkept, drifted, alerted = found
    assert (published["topic"], published["partition"], published["offset"]) == (f"{dry_river.prefix}tool-calls", 2, 1)
    assert published["time"] > 1_700_000_000_000_000
    assert (landed["tool"], landed["status"], landed["text"], landed["redactions"]) == (
        "swap",
        "error",
        "It slipped.",
        0,
    )
    assert watched == {
        "station": "watched",
        "key": "swap|ethereum|USDC/WETH",
        "metrics": {"gas_gwei": 40.5, "error_rate": 1.0},
    }
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
    assert names(found) == ["published", "landed", "waiting", "clustered"]
    assert found[2]["hop"] == "watch"


def test_an_event_that_nobody_knows_has_no_station(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [CALL])
    assert stations(dry_river, "nobody") == []


def test_bytes_in_the_log_that_are_no_call_do_not_stop_the_search(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [b"not json", b"", CALL])
    assert names(stations(dry_river, ID)) == ["published", "waiting"]


OPS = {"i-1": Claim(source="dex", tool="swap", expected=0.9, reference=0.1), "i-2": Claim(source="dex", tool="quote")}


def test_a_claim_known_before_the_call_is_a_prediction_and_the_vote_of_its_window_is_told(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [OTHER, CALL], 2)
    dry_river.write(CLUSTERS, [cluster("c-1", "x", ID)], 1)
    dry_river.reach(WATCH, Progress(resume=9, at=LATE))
    claims = [Held(name, claim, T0 - 1) for name, claim in OPS.items()]
    vote = Touch("o-2", "UPVOTE", "prediction", "i-1", "c-1", frozenset())
    found = stations(dry_river, ID, episode(), claims=claims, touches=[vote])
    assert found[-1] == {"station": "predicted", "id": "i-1", **KEPT, "expected": "more failures", "vote": "UPVOTE"}
    assert names(found).count("predicted") == 1, "the other claim is about another tool"

    unvoted = stations(dry_river, ID, episode(), claims=claims, touches=[])
    assert unvoted[-1]["vote"] is None
    later = [Held("i-1", OPS["i-1"], T0)]
    assert "predicted" not in names(stations(dry_river, ID, episode(), claims=later, touches=[]))


def test_votes_that_are_not_kept_yet_are_read_from_the_log_behind_keep(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [OTHER, CALL], 2)
    vote = msgspec.structs.replace(op("o-2", "DOWNVOTE", "i-1", ID), reason="prediction")
    dry_river.write(INSIGHT_OPS, [op("o-1", "ADD", "i-9", ID), vote])
    dry_river.reach(KEEP, Progress(resume=1))
    found = stations(dry_river, ID, episode(), touches=[])
    assert names(found) == ["published", "landed", "waiting", "predicted"]
    assert (found[-1]["id"], found[-1]["vote"], found[-1]["expected"]) == ("i-1", "DOWNVOTE", None)


def test_a_call_whose_window_is_open_is_found_in_the_state_of_gather(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [OTHER, CALL], 2)
    row = Row(event_id=ID, run_id="run-1", failed=True, at=T0)
    gone = Row(event_id="gone", run_id="run-1", failed=True, at=T0)
    pane = Pane(lane="lane", source="dex", tool="swap", start=T0 - 5, end=T0 + 5, n=2)
    rows = [
        (b"panes\x1flane:5", encode(pane)),
        (b"rows\x1flane:5:0", encode(gone)),
        (b"rows\x1flane:5:0", encode(msgspec.structs.replace(gone, event_id="other"))),
        (b"rows\x1flane:5:1", encode(row)),
    ]
    dry_river.write(GATHER.state_topic, rows, 3)
    found = stations(dry_river, ID, episode())
    assert found[-1] == {
        "station": "gathering",
        "tool": "swap",
        "n": 2,
        "window_start": T0 - 5,
        "window_end": T0 + 5,
    }
    assert "gathering" not in names(stations(dry_river, "gone", episode(id="gone")))


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
        found = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
        assert names(found) == ["published", "landed", "waiting", "learnt"]
        _, landed, _, lesson = found
        assert landed["id"] == ID
        assert (lesson["id"], lesson["content"], lesson["state"]) == ("i-1", "A low tolerance fails.", "candidate")

    def test_people_see_one_line_a_station(self, river: Any, data: Path) -> None:
        result = self.run(river, data, ID)
        published, landed, _, lesson = result.stdout.splitlines()
        assert published.startswith(f"published   {river.prefix}tool-calls[2]@1, 20")
        assert landed == (
            "landed      dex run-1 swap ethereum USDC/WETH error, 2023-08-17 21:34:00Z, 0 redacted: It slipped."
        )
        assert lesson.startswith("learnt      candidate 0.60: A low tolerance fails. (evidence for ADD; i-1)")

    def test_an_unknown_id_is_said(self, river: Any, data: Path) -> None:
        result = self.run(river, data, "nobody")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == ("No event, run or call is called nobody. `fluvial search` shows ids of events.\n")

    def test_a_run_is_a_list_of_its_calls_and_then_each_in_short(self, river: Any, data: Path) -> None:
        store, vectors = EpisodeStore.open(data / "episodes"), np.eye(3, DIMENSIONS, dtype=np.float32)
        more = [episode(id=f"e-{n}", seq=n, started_at=T0 + n, call_id=f"c-{n}", log_offset=9 + n) for n in range(1, 4)]
        store.merge(more, vectors)
        letter = DeadLetter(
            id="d-1",
            hop="land",
            topic="t",
            partition=0,
            offset=0,
            reason="too deep",
            value="{}",
            at=T0,
            key="dex|run-1",
        )
        other = msgspec.structs.replace(letter, id="d-2", key="dex|run-10")
        river.write(DEAD_LETTERS, [letter, other])
        result = self.run(river, data, "run-1", "--json", "--limit", "3")
        assert result.stderr == "Only 3 of its calls are told: --limit tells of more.\n"
        found = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
        assert names(found) == ["call"] * 3 + ["in short"] * 3 + ["dead letter"]
        assert found[0]["id"] == found[3]["id"] == ID
        assert found[3]["stations"] == {"published": 1, "landed": 1, "waiting": 1, "learnt": 1}
        assert found[-1]["id"] == "d-1"
        (first, *_) = self.run(river, data, "run-1").stdout.splitlines()
        assert first == f"call        {ID}  run-1 swap error, 2023-08-17 21:34:00Z"

        whole = self.run(river, data, "c-2", "--json")
        assert names([msgspec.json.decode(line) for line in whole.stdout.splitlines()])[0] == "landed"

    def test_a_run_of_which_nothing_landed_is_told_by_its_dead_letters(self, river: Any, tmp_path: Path) -> None:
        letter = DeadLetter(
            id="d-1",
            hop="land",
            topic="t",
            partition=0,
            offset=0,
            reason="too deep",
            value='{"run":"run-8"}',
            at=T0,
            key="dex|run-8",
        )
        river.write(DEAD_LETTERS, [letter])
        result = self.run(river, tmp_path, "run-8")
        assert result.stdout == "dead letter land: too deep (d-1)\n"

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
        "metrics": {"gas": 1.5},
        "key": "swap||",
        "vote": None,
        "expected": "x",
        **dict.fromkeys(("run_id", "call_id", "status"), "z"),
        "seq": None,
        "stations": {"landed": 1},
    }
    assert TOLD[name](fields)
