"""fluvial digest: the same memory has the same hash, another one another."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from support.lessons import add, apply, op, opened
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.cli.digest import fingerprint
from fluvial.schemas.episode import Episode
from fluvial.schemas.insight import InsightOp
from fluvial.sinks.episodes import EpisodeStore
from fluvial.sinks.quack import Quack
from fluvial.sinks.snapshot import write_snapshot

OPS = [add("i1", evidence=("e1",)), add("i2"), op("UPVOTE", "i1", 2)]


def episode(number: int, **fields: Any) -> Episode:
    defaults: dict[str, Any] = {"text": f"Call {number}.", "log_partition": 0, "log_offset": number}
    return Episode(
        id=f"e{number}",
        source="s",
        run_id="r",
        tool="t",
        status="ok",
        started_at=number,
        reflection_source="template",
        embedding_model="m",
        **(defaults | fields),
    )


def remember(data: Path, episodes: Sequence[Episode] = (), ops: Sequence[InsightOp] = OPS, batch: int = 10) -> Path:
    """A data folder with these episodes and the insights of these operations, merged and folded in batches."""
    store = EpisodeStore.create(data / "episodes")
    for start in range(0, len(episodes), batch):
        part = episodes[start : start + batch]
        store.merge(part, np.zeros((len(part), 384), np.float32))
    insights = opened(data / "keep" / "live.duckdb")
    for start in range(0, len(ops), batch):
        apply(insights, ops[start : start + batch], start)
    write_snapshot(insights.cursor(), data / "insights.duckdb", data / "keep" / "scratch")
    insights.close()
    return data


def digest(data: Path) -> Any:
    result = CliRunner().invoke(app, ["digest", "--data", str(data), "--json"])
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.stdout)


def test_memories_that_hold_the_same_have_the_same_digest_however_they_came_to_it(tmp_path: Path) -> None:
    episodes = [episode(number) for number in range(7)]
    one = digest(remember(tmp_path / "one", episodes))
    elsewhere = [replace(episode, log_partition=3, log_offset=99) for episode in reversed(episodes)]
    other = digest(remember(tmp_path / "other", elsewhere, [*OPS, OPS[2]], batch=2))
    assert one == other
    assert one["episodes"]["count"] == 7
    assert one["insights"]["count"] == 2 + 3 + 1
    assert len({one["digest"], one["episodes"]["digest"], one["insights"]["digest"]}) == 3


def test_any_difference_in_what_is_remembered_shows(tmp_path: Path) -> None:
    base = digest(remember(tmp_path / "base", [episode(1)]))
    text = digest(remember(tmp_path / "text", [episode(1, text="Other.")]))
    vote = digest(remember(tmp_path / "vote", [episode(1)], [*OPS, op("DOWNVOTE", "i2", 3)]))
    why = digest(remember(tmp_path / "why", [episode(1)], [replace(OPS[0], evidence=("e2",)), *OPS[1:]]))
    assert text["insights"] == base["insights"]
    assert text["episodes"] != base["episodes"]
    assert (vote["episodes"], why["episodes"]) == (base["episodes"], base["episodes"])
    assert len({str(one["insights"]) for one in (base, vote, why)}) == 3
    assert len({one["digest"] for one in (base, text, vote, why)}) == 4


def test_it_is_the_same_while_keep_runs(tmp_path: Path) -> None:
    before = digest(remember(tmp_path))
    store = opened(tmp_path / "keep" / "live.duckdb")
    quack = Quack(store.cursor(), tmp_path / "keep", 0, tmp_path / "keep" / "scratch")
    assert digest(tmp_path) == before
    apply(store, [op("UPVOTE", "i2", 9)], first=3)
    assert digest(tmp_path) != before
    quack.stop()
    store.close()


def test_people_see_both_parts_and_the_whole(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["digest", "--data", str(remember(tmp_path, [episode(1)]))])
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines() if line.strip(" ─")]
    assert [line[0] for line in lines] == ["memory", "episodes", "insights", "both"]
    assert {len(line[-1]) for line in lines[1:]} == {32}


def test_a_folder_without_memory_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["digest", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"There is no memory in {tmp_path}: start `fluvial up`")


def test_insights_that_cannot_be_read_are_no_empty_memory(tmp_path: Path) -> None:
    remember(tmp_path, [episode(1)])
    (tmp_path / "insights.duckdb").write_bytes(b"junk" * 5_000)
    result = CliRunner().invoke(app, ["digest", "--data", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{tmp_path / 'insights.duckdb'} cannot be read (")


@pytest.mark.parametrize("other", [["a"], ["a", "a", "b"], ["a", "c"], []])
def test_the_fingerprint_is_of_the_rows_and_how_often_they_come_not_of_their_order(other: list[str]) -> None:
    assert fingerprint(["a", "b"]) == fingerprint(["b", "a"])
    assert fingerprint(["a", "b"]) != fingerprint(other)
