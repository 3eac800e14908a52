"""fluvial sql."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.lessons import add, apply, op, opened
from typer.testing import CliRunner

from fluvial.cli import app
from fluvial.cli.sql import distinct, plain
from fluvial.sinks.quack import Quack
from fluvial.sinks.snapshot import write_snapshot


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder whose worker has stopped."""
    folder = tmp_path_factory.mktemp("data")
    store = opened(folder / "keep" / "live.duckdb")
    apply(store, [add("i1", 1_700_000_000_000_000), add("i2"), op("UPVOTE", "i1", 2)])
    write_snapshot(store.cursor(), folder / "insights.duckdb", folder / "keep" / "scratch")
    store.close()
    return folder


def run(data: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["sql", "--data", str(data), *arguments])


def test_people_see_a_table(data: Path) -> None:
    result = run(data, "SELECT id, confidence, created_at FROM lessons")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines() if line.strip(" ─")]
    assert lines == [
        ["id", "confidence", "created_at"],
        ["i1", "0.7", "2023-11-14", "22:13:20"],
        ["i2", "0.6", "1970-01-01", "00:00:00.000001"],
    ]


def test_with_json_there_is_one_object_a_row(data: Path) -> None:
    query = "SELECT id, created_at, tags: ['a'], big: 2::HUGEINT ** 70, nothing: NULL, id FROM lessons"
    result = run(data, query, "--json")
    assert result.exit_code == 0
    assert msgspec.json.decode(result.stdout.splitlines()[0]) == {
        "id": "i1",
        "created_at": "2023-11-14T22:13:20",
        "tags": ["a"],
        "big": 2.0**70,
        "nothing": None,
        "id_1": "i1",
    }


def test_while_keep_runs_the_live_insights_answer(tmp_path: Path) -> None:
    store = opened(tmp_path / "keep" / "live.duckdb")
    quack = Quack(store.cursor(), tmp_path / "keep", 0, tmp_path / "keep" / "scratch")
    apply(store, [add("i1")])
    result = run(tmp_path, "SELECT id FROM insights", "--json")
    assert (result.exit_code, result.stdout) == (0, '{"id":"i1"}\n')
    quack.stop()
    store.close()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT 1 FROM nothing", "Table with name nothing does not exist"),
        ("DROP TABLE insights", "Only one SELECT is answered"),
    ],
)
def test_a_query_that_is_wrong_ends_with_1_and_what_is_wrong(data: Path, query: str, message: str) -> None:
    result = run(data, query)
    assert result.exit_code == 1
    assert message in str(result.exception)


def test_no_query_is_wrong_use(data: Path) -> None:
    result = run(data)
    assert result.exit_code == 2
    assert "QUERY" in result.stderr


def test_a_folder_without_insights_is_said(tmp_path: Path) -> None:
    result = run(tmp_path, "SELECT 1")
    assert result.exit_code == 1
    assert str(result.exception).startswith(f"{tmp_path / 'insights.duckdb'} is not there yet: start `fluvial up`")


def test_names_that_come_twice_are_told_apart() -> None:
    assert distinct(["a", "a", "a_1", "a"]) == ["a", "a_1", "a_1_1", "a_2"]


def test_what_json_does_not_know_is_text() -> None:
    assert plain({(1, 2): 3}) == "{(1, 2): 3}"
    assert plain({"a": [1.5, None]}) == {"a": [1.5, None]}
