"""The snapshot: whole or not there, young, and open to any DuckDB client."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from support.lessons import add, apply, drift, op, opened

from fluvial.sinks.insights import Insights
from fluvial.sinks.snapshot import write_snapshot


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Insights]:
    store = opened(tmp_path / "keep" / "live.duckdb")
    yield store
    store.close()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "insights.duckdb"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "keep" / "scratch"


def read(path: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as plain:
        return plain.execute(query).fetchall()


def write(store: Insights, target: Path, scratch: Path) -> None:
    with store.cursor() as connection:
        write_snapshot(connection, target, scratch)


def test_a_plain_client_reads_tables_views_and_vectors(store: Insights, target: Path, scratch: Path) -> None:
    apply(store, [add("i1", evidence=("e1",)), add("i2"), drift("swap", 2)])
    write(store, target, scratch)
    assert read(target, "SELECT id, confidence, state FROM lessons") == [
        ("i1", 0.45, "candidate"),
        ("i2", 0.45, "candidate"),
    ]
    assert read(target, "SELECT op, reason FROM history WHERE insight_id = 'i1'") == [
        ("ADD", "episode"),
        ("DOWNVOTE", "drift"),
    ]
    assert read(target, "SELECT event_id FROM evidence") == [("e1",)]
    asked = "(SELECT embedding FROM insights WHERE id = 'i2')"
    near = f"SELECT id FROM insights ORDER BY array_cosine_distance(embedding, {asked})"
    assert read(target, near)[0] == ("i2",)
    loaded = "SELECT extension_name FROM duckdb_extensions() WHERE loaded AND extension_name IN ('vss', 'quack')"
    assert read(target, loaded) == []
    with duckdb.connect(str(target)) as plain, pytest.raises(duckdb.ConstraintException):
        plain.execute("INSERT INTO insights SELECT * FROM insights")


def test_each_snapshot_replaces_the_one_before_in_one_step(store: Insights, target: Path, scratch: Path) -> None:
    apply(store, [add("i1")])
    write(store, target, scratch)
    before = target.stat().st_ino
    apply(store, [add("i2")], first=1)
    write(store, target, scratch)
    assert read(target, "SELECT count(*) FROM insights") == [(2,)]
    assert target.stat().st_ino != before
    assert list(scratch.iterdir()) == []


def test_what_a_crash_left_half_written_is_removed(store: Insights, target: Path, scratch: Path) -> None:
    scratch.mkdir()
    (scratch / "insights.duckdb").write_bytes(b"half")
    (scratch / "insights.duckdb.wal").write_bytes(b"half")
    write(store, target, scratch)
    assert read(target, "SELECT count(*) FROM insights") == [(0,)]
    assert list(scratch.iterdir()) == []


def test_what_a_killed_client_wrote_does_not_come_into_the_next_snapshot(
    store: Insights, target: Path, scratch: Path
) -> None:
    write(store, target, scratch)
    code = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]); c.execute('CREATE TABLE mine (i INT)'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, target], check=False)
    assert target.with_name("insights.duckdb.wal").exists()
    write(store, target, scratch)
    assert read(target, "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'mine'") == [(0,)]


def test_folding_goes_on_while_a_snapshot_is_written(store: Insights, target: Path, scratch: Path) -> None:
    apply(store, [add(f"i{n}") for n in range(100)])

    def write_five() -> None:
        for _ in range(5):
            write(store, target, scratch)

    writing = threading.Thread(target=write_five)
    writing.start()
    votes = 0
    while writing.is_alive():
        apply(store, [op("UPVOTE", f"i{votes % 100}", 2 + votes)], first=100 + votes)
        votes += 1
    writing.join()
    assert votes > 1
    write(store, target, scratch)
    assert read(target, "SELECT count(*), sum(helpful) FROM insights") == [(100, votes)]
