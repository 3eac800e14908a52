"""fluvial insights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.lessons import add, apply, op, opened
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.processors.embed import Embedder
from fluvial.processors.expel import step
from fluvial.schemas.insight import Insight
from fluvial.sinks.insights import Insights
from fluvial.sinks.quack import Quack
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


SAID = {
    "gas": "Raise the gas price when the network is congested.",
    "pool": "Swaps in shallow pools fail because of slippage.",
    "weather": "Ask for the city before looking up the weather.",
    "thin": "Thin liquidity makes trades revert.",
}


@pytest.fixture(scope="module", params=["live", "snapshot"])
def meant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Lessons with their real embeddings, answered by the server or read from the snapshot."""
    folder = tmp_path_factory.mktemp("meant")
    keep = folder / "keep"
    store = Insights(keep / "live.duckdb", step, Embedder().embed)
    ops = [add(name, tool="bridge" if name == "thin" else "swap", content=text) for name, text in SAID.items()]
    apply(store, [*ops, op("UPVOTE", "weather", 2), op("REJECT", "gas", 2)])
    write_snapshot(store.cursor(), folder / "insights.duckdb", keep / "scratch")
    quack = Quack(store.cursor(), keep, 0, keep / "scratch") if request.param == "live" else None
    if quack:
        (folder / "insights.duckdb").unlink()
    yield folder
    if quack:
        quack.stop()
    store.close()


def test_like_gives_the_nearest_in_meaning_first(meant: Path) -> None:
    like = ("--like", "the trade failed: there's not enough liquidity")
    assert found(meant, *like) == ["thin", "pool", "weather"]
    assert found(meant, *like, "--limit", "1") == ["thin"]
    assert found(meant, *like, "--tool", "swap") == ["pool", "weather"]
    assert found(meant, *like, "--min-confidence", "0.65") == ["weather"]
    assert found(meant, *like, "--state", "rejected") == ["gas"]
    assert found(meant, *like, "--state", "all")[0] == "thin"
    assert found(meant, *like, "--tool", "x' OR 1=1 --") == []


def test_like_says_how_far_each_is(meant: Path) -> None:
    same = msgspec.json.decode(run(meant, "--like", SAID["pool"], "--limit", "1", "--json").stdout)
    assert (same["id"], same["distance"]) == ("pool", pytest.approx(0, abs=1e-5))
    lines = [line.split() for line in run(meant, "--like", SAID["pool"]).stdout.splitlines() if line.strip(" ─")]
    assert lines[0] == ["distance", "confidence", "state", "votes", "sentence"]
    distances = [float(line[0]) for line in lines[1:]]
    assert distances == sorted(distances)


def test_like_shows_ten_unless_told_otherwise(tmp_path: Path) -> None:
    store = opened(tmp_path / "insights.duckdb")
    apply(store, [add(f"i{number}", number) for number in range(12)])
    store.close()
    assert len(found(tmp_path, "--like", "swap")) == 10
    assert len(found(tmp_path, "--like", "swap", "--limit", "11")) == 11
    assert len(found(tmp_path)) == 12
    assert len(found(tmp_path, "--limit", "2")) == 2


def test_like_nothing_is_wrong_use(data: Path) -> None:
    assert CliRunner().invoke(app, ["insights", "--data", str(data), "--like", " "]).exit_code == 2
