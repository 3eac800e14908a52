"""fluvial insights."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.lessons import add, apply, op, opened
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.schemas.insight import Insight
from fluvial.sinks.snapshot import write_snapshot


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    store = opened(folder / "keep" / "live.duckdb")
    ops = [add("a"), add("b"), add("c", tool="bridge"), add("gone"), op("REJECT", "gone", 2)]
    ops += [op("UPVOTE", "b", 2), op("UPVOTE", "b", 3), op("DOWNVOTE", "c", 2)]
    ops += [op("DIRECTIVE", "rule", 4, reason="operator", content="Never on Sundays.")]
    apply(store, ops)
    write_snapshot(store.cursor(), folder / "insights.duckdb", folder / "keep" / "scratch")
    store.close()
    return folder


def run(data: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(app, ["insights", "--data", str(data), *arguments])
    assert result.exit_code == 0, result.output
    return result


def found(data: Path, *arguments: str) -> list[str]:
    return [msgspec.json.decode(line)["id"] for line in run(data, *arguments, "--json").stdout.splitlines()]


def test_people_see_what_is_live_the_surest_first(data: Path) -> None:
    lines = [" ".join(line.split()) for line in run(data).stdout.splitlines() if line.strip(" ─")]
    assert lines == [
        "confidence state votes sentence",
        "1.00 active +0 -0 Never on Sundays.",
        "0.80 active +2 -0 Calls of swap like b fail.",
        "0.60 candidate +0 -0 Calls of swap like a fail.",
        "0.45 candidate +0 -1 Calls of bridge like c fail.",
    ]


def test_with_json_every_field_and_the_claim_are_there(data: Path) -> None:
    line = msgspec.json.decode(run(data, "--state", "active", "--json").stdout.splitlines()[1])
    assert tuple(line) == Insight.__struct_fields__
    assert line["claim"]["atoms"] == [{"feature": "args.size", "op": "ge", "value": 1}]
    assert msgspec.convert(line, Insight).confidence == 0.8


def test_state_tool_and_confidence_narrow_what_is_shown(data: Path) -> None:
    assert found(data, "--state", "rejected") == ["gone"]
    assert found(data, "--state", "all") == ["rule", "b", "a", "gone", "c"]
    assert found(data, "--tool", "bridge") == ["c"]
    assert found(data, "--min-confidence", "0.6") == ["rule", "b", "a"]
    assert found(data, "--tool", "swap", "--min-confidence", "0.7") == ["b"]
    assert found(data, "--tool", "no such tool") == []


def test_that_nothing_is_there_is_said(data: Path) -> None:
    assert run(data, "--tool", "no such tool").stdout == "No insights.\n"


@pytest.mark.parametrize("arguments", [("--state", "dead"), ("--min-confidence", "1.5")])
def test_a_state_or_a_confidence_that_does_not_exist_is_wrong_use(data: Path, arguments: tuple[str, str]) -> None:
    assert CliRunner().invoke(app, ["insights", "--data", str(data), *arguments]).exit_code == 2
