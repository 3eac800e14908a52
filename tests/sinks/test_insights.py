"""The store of insights on real DuckDB: the fold made durable, exact search, and kill -9."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from msgspec.structs import replace
from support.lessons import add, apply, drift, embed, folded, history, op, opened

from fluvial.schemas.insight import Insight
from fluvial.schemas.progress import Progress
from fluvial.sinks.insights import Insights, Unreadable
from fluvial.sinks.insights_schema import INSIGHTS

TESTS = Path(__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keep" / "live.duckdb"


@pytest.fixture
def store(path: Path) -> Iterator[Insights]:
    store = opened(path)
    yield store
    store.close()


def rows(store: Insights, query: str) -> list[tuple[object, ...]]:
    return store.cursor().execute(query).fetchall()


def reopened(path: Path) -> dict[str, Insight]:
    """What the file says after it was closed: read from the table, not from memory."""
    store = opened(path)
    names = [str(name) for (name,) in rows(store, "SELECT id FROM insights")]
    insights = {name: insight for name in names if (insight := store.get(name)) is not None}
    store.close()
    return insights


def test_the_table_has_the_columns_of_the_record_and_the_embedding() -> None:
    with duckdb.connect() as connection:
        connection.execute(INSIGHTS)
        columns = [row[0] for row in connection.execute("DESCRIBE insights").fetchall()]
    assert columns == [*Insight.__struct_fields__, "embedding"]


def test_a_long_history_comes_to_what_the_pure_fold_says(path: Path) -> None:
    ops = history(800)
    store = opened(path)
    chance, at = random.Random(3), 0
    while at < len(ops):
        size = chance.choice([1, 20, 64, 200])
        apply(store, ops[at : at + size], at)
        at += size
    store.close()
    assert reopened(path) == folded(ops)


def test_the_embedding_is_always_that_of_the_sentence(store: Insights) -> None:
    apply(store, history(400))
    for content, vector in rows(store, "SELECT content, embedding FROM insights"):
        assert list(vector) == pytest.approx(embed([str(content)])[0].tolist())  # type: ignore[call-overload]


def test_an_operation_that_comes_again_is_applied_once(store: Insights) -> None:
    apply(store, [add("i1"), op("UPVOTE", "i1", 2)])
    again = apply(store, [op("UPVOTE", "i1", 2), op("UPVOTE", "i1", 3), op("UPVOTE", "i1", 3)], first=2)
    assert [kind for kind, _ in again] == ["duplicate", "applied", "duplicate"]
    assert (store.get("i1") or pytest.fail()).confidence == 0.8


def test_a_batch_repeated_after_a_crash_has_the_outcomes_it_had(store: Insights) -> None:
    ops = [op("UPVOTE", "i1", 1), add("i1"), op("UPVOTE", "i1", 2)]
    first = apply(store, ops)
    assert first == [("refused", "UPVOTE of the insight 'i1', which is unknown"), ("applied", ""), ("applied", "")]
    before = store.get("i1")
    assert apply(store, ops) == first
    assert store.get("i1") == before
    assert rows(store, "SELECT count(*) FROM operations") == [(3,)]


def test_a_refused_operation_that_is_replayed_is_tried_again(store: Insights) -> None:
    vote = op("UPVOTE", "i1", 1)
    assert apply(store, [vote])[0][0] == "refused"
    outcomes = apply(store, [vote, add("i1"), vote, vote], first=1)
    assert [kind for kind, _ in outcomes] == ["refused", "applied", "applied", "duplicate"]
    assert (store.get("i1") or pytest.fail()).confidence == 0.7
    assert rows(store, "SELECT op_id, log_offset, refused FROM operations ORDER BY log_offset") == [
        ("ADD-i1-1", 2, None),
        ("UPVOTE-i1-1", 3, None),
    ]


def test_every_operation_leaves_a_trail(store: Insights) -> None:
    apply(store, [add("i1", evidence=("e1", "e2")), drift("swap", 2), op("EDIT", "i9", 3, content="x")])
    query = "SELECT op, reason, confidence_before, confidence_after, state_after, cause FROM history"
    assert rows(store, query) == [
        ("ADD", "episode", None, 0.6, "candidate", None),
        ("DOWNVOTE", "drift", 0.6, 0.45, "candidate", "drift-2"),
    ]
    assert rows(store, "SELECT insight_id, event_id, op FROM evidence ORDER BY ALL") == [
        ("i1", "e1", "ADD"),
        ("i1", "e2", "ADD"),
    ]
    refused = "SELECT op_id, refused FROM operations WHERE refused IS NOT NULL"
    assert rows(store, refused) == [("EDIT-i9-3", "EDIT of the insight 'i9', which is unknown")]


def test_lessons_are_what_is_live_the_surest_first_with_times_for_people(store: Insights) -> None:
    ops = [add("low"), add("high"), add("gone"), op("UPVOTE", "high", 2), op("REJECT", "gone", 3)]
    apply(store, [replace(one, at=1_700_000_000_000_000) for one in ops])
    query = "SELECT id, confidence, probability, created_at::VARCHAR, claim->>'$.tool' FROM lessons"
    assert rows(store, query) == [
        ("high", 0.7, 2 / 3, "2023-11-14 22:13:20", "swap"),
        ("low", 0.6, 0.5, "2023-11-14 22:13:20", "swap"),
    ]


def test_search_is_exact_and_filters_before_it_counts(store: Insights) -> None:
    ops = [add(f"i{n:03}", category="slippage" if n % 10 else "gas_timing") for n in range(200)]
    ops += [op("DOWNVOTE", "i000", 2), op("ARCHIVE", "i010", 2)]
    apply(store, ops)
    vector = embed([ops[30].content or ""])[0]
    found = store.nearest(vector, category="gas_timing", k=25)
    distances = {near.insight.id: near.distance for near in found}
    assert set(distances) == {f"i{n:03}" for n in range(0, 200, 10)} - {"i000", "i010"}
    assert found[0].insight == store.get("i030")
    assert found[0].distance == pytest.approx(0.0, abs=1e-6)
    expected = {
        name: 1.0 - float(embed([(store.get(name) or pytest.fail()).content])[0] @ vector) for name in distances
    }
    assert distances == pytest.approx(expected, abs=1e-6)
    assert list(distances) == sorted(distances, key=lambda name: (distances[name], name))
    assert len(store.nearest(vector, k=3)) == 3
    assert store.nearest(vector, min_confidence=0.61) == []


def test_text_of_any_kind_comes_back_as_it_went_in(store: Insights, path: Path) -> None:
    text = "quote ' \" \\ zero \0 中文 \u202e \U0001f98a {}; DROP TABLE insights"
    apply(store, [add("i1", content=text, evidence=(text,), op_id=text)])
    store.close()
    assert reopened(path)["i1"].content == text


def test_the_progress_is_kept_even_when_nothing_was_folded(store: Insights, path: Path) -> None:
    assert store.progress() == Progress(resume=0)
    told = Progress(resume=12, slot=7, at=9, read=5, dead=1)
    store.commit(store.fold([]), told)
    store.close()
    with duckdb.connect(str(path)) as plain:
        assert plain.execute("SELECT count(*) FROM meta").fetchall() == [(2,)]
    assert opened(path).progress() == told


def test_a_batch_that_cannot_be_written_changes_nothing(store: Insights) -> None:
    apply(store, [add("i1")])
    batch = store.fold([(1, op("UPVOTE", "i1", 2)), (2, add("i2"))])
    batch.changes.append(batch.changes[0])
    with pytest.raises(duckdb.ConstraintException):
        store.commit(batch, Progress(resume=3))
    assert store.progress() == Progress(resume=1)
    assert (store.get("i2"), rows(store, "SELECT count(*) FROM operations")) == (None, [(1,)])
    apply(store, [op("UPVOTE", "i1", 2)], first=1)
    assert (store.get("i1") or pytest.fail()).confidence == 0.7


def test_one_process_holds_the_file(store: Insights, path: Path) -> None:
    code = "import sys; from support.lessons import *; opened(Path(sys.argv[1]))"
    second = subprocess.run([sys.executable, "-c", code, path], env=_environment(), capture_output=True, text=True)
    assert second.returncode == 1
    assert f"InUse: {path} is open in another process: stop it first" in second.stderr


def test_a_damaged_file_is_said_with_what_to_do(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(Unreadable, match=r"not a valid DuckDB database file.*move it away: it is built anew"):
        opened(path)


def test_a_file_of_another_release_is_left_alone(store: Insights, path: Path) -> None:
    store.cursor().execute("UPDATE meta SET value = '99' WHERE name = 'schema_version'")
    store.close()
    with pytest.raises(Unreadable, match="schema version 99, this release writes 1"):
        opened(path)


@pytest.mark.parametrize("seed", [1, 2])
def test_after_kill_9_at_any_moment_the_file_holds_the_fold_up_to_its_progress(path: Path, seed: int) -> None:
    ops, chance, acknowledged = history(20_000, seed=1), random.Random(seed), 0
    path.parent.mkdir()
    for life in range(3):
        folding = subprocess.Popen(
            [sys.executable, "-m", "support.lessons", path.parent, str(10 * seed + life)],
            env=_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert folding.stdout is not None
        acknowledged = max(acknowledged, int(folding.stdout.readline()))
        time.sleep(chance.uniform(0.0, 1.0))
        folding.kill()
        acknowledged = max([acknowledged, *map(int, folding.stdout.read().split())])
        folding.stdout.close()
        folding.wait()
        store = opened(path)
        reached = store.progress().resume
        counted = rows(store, "SELECT count(*), count(DISTINCT op_id) FROM operations")
        texts = rows(store, "SELECT content, embedding FROM insights ORDER BY hash(id) LIMIT 50")
        store.close()
        assert reached >= acknowledged > 0
        assert reopened(path) == folded(ops[:reached])
        assert counted == [(reached, reached)]
        for content, vector in texts:
            assert list(vector) == pytest.approx(embed([str(content)])[0].tolist())  # type: ignore[call-overload]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
