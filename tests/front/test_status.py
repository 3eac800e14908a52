"""fluvial status."""

import time
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.cli.status import ago, standstill
from fluvial.schemas.progress import Progress
from fluvial.schemas.tool_call import ToolCall
from fluvial.schemas.topics import HOPS, LAND, TOOL_CALLS
from fluvial.settings import Settings
from fluvial.streams.progress import HopStatus

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
SETTINGS = Settings(idle_tick_seconds=30)


def hop(name: str, lag: int, age_seconds: int | None) -> HopStatus:
    last = None if age_seconds is None else NOW - age_seconds * SECOND
    return HopStatus(name, read=0, emitted=0, done=0, dead=0, duplicate=0, late=0, lag=lag, last_progress=last)


def run(river: Any, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["status", *arguments], env=river.environment)


def test_with_json_there_is_one_object_a_hop_with_the_promised_keys(dry_river: Any) -> None:
    dry_river.write(TOOL_CALLS, [ToolCall(source="s", run_id="r", tool="t")] * 5)
    dry_river.reach(LAND, Progress(resume=2, read=2, emitted=1, done=1, dead=1), [0])
    before = time.time_ns() // 1_000
    result = run(dry_river, "--json")
    assert result.exit_code == 0
    hops = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    assert [hop["hop"] for hop in hops] == list(HOPS)
    assert {tuple(hop) for hop in hops} == {
        ("hop", "in", "done", "duplicate", "dead", "late", "out", "lag", "last_progress")
    }
    land = next(hop for hop in hops if hop["hop"] == "land")
    last = land.pop("last_progress")
    assert land == {
        "hop": "land",
        "in": 2,
        "done": 1,
        "duplicate": 0,
        "dead": 1,
        "late": 0,
        "out": 1,
        "lag": 3,
    }
    assert before - 60 * SECOND < last <= before
    assert hops[1]["last_progress"] is None


def test_people_see_a_table(dry_river: Any) -> None:
    dry_river.reach(LAND, Progress(resume=0, read=12_345, done=12_345), [0])
    result = run(dry_river)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines() if line.strip("─ ")] == ["hop", *HOPS]
    assert "12,345" in result.stdout
    assert "s ago" in result.stdout


def test_a_river_where_nobody_ever_worked_is_said(dry_river: Any) -> None:
    result = run(dry_river)
    assert result.exit_code == 0
    assert result.stderr == "No worker seems to run (last progress: never). `fluvial up` starts the workers.\n"


def test_a_broker_that_does_not_answer_ends_it_with_a_sentence() -> None:
    result = CliRunner().invoke(app, ["status", "--broker", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert str(result.exception).startswith("Kafka at 127.0.0.1:1 does not answer")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s ago"), (119, "119 s ago"), (120, "2 min ago"), (7_200, "2 h ago"), (200_000, "2 d ago"), (-5, "0 s ago")],
)
def test_an_age_is_said_in_one_unit(seconds: int, said: str) -> None:
    assert ago(NOW - seconds * SECOND, NOW) == said


def test_all_is_well_while_ticks_come() -> None:
    assert standstill([hop("land", 0, 40), hop("watch", 7, 2)], NOW, SETTINGS) is None


def test_a_hop_that_stands_still_with_work_to_do_is_named() -> None:
    warning = standstill([hop("land", 0, 1), hop("watch", 7, 91)], NOW, SETTINGS)
    assert warning is not None and "watch" in warning and "land" not in warning


def test_a_hop_that_has_nothing_to_do_is_not_named() -> None:
    assert standstill([hop("land", 0, 1), hop("watch", 0, 91)], NOW, SETTINGS) is None


def test_when_all_are_silent_no_worker_runs() -> None:
    warning = standstill([hop("land", 3, 300), hop("watch", 0, None)], NOW, SETTINGS)
    assert warning == "No worker seems to run (last progress: 5 min ago). `fluvial up` starts the workers."


def test_a_hop_whose_counts_do_not_add_up_is_named(dry_river: Any) -> None:
    dry_river.reach(LAND, Progress(resume=9, read=9, done=4, dead=1, duplicate=1, late=1), [0])
    result = run(dry_river)
    assert "land does not account for 2 of its records" in result.stderr
