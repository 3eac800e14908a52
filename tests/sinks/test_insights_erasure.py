"""Forgotten events leave the evidence, their words leave the lessons, and their bytes leave the file."""

import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from support.lessons import add, apply, op, opened

from fluvial.processors.erasure import tells
from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.erasure import ERASED, Erasure
from fluvial.sinks.insights import Insights
from fluvial.sinks.insights_erasure import NOTE, Forgetting

NAME = "Marmaduke Fitzgerald"
SUBJECT = Erasure(what="subject", value=NAME)


def forgetting(*events: str, erasure: Erasure = SUBJECT) -> Forgetting:
    return Forgetting(id="order", at=9, event_ids=events, tells=lambda words, claim: tells(words, claim, erasure))


@pytest.fixture
def store(tmp_path: Path) -> Insights:
    return opened(tmp_path / "live.duckdb")


def rows(store: Insights, query: str) -> list[tuple[object, ...]]:
    return store.cursor().execute(query).fetchall()


def test_forgotten_events_leave_the_evidence_and_support_and_the_lesson_is_marked(store: Insights) -> None:
    ops = [
        add("i1", evidence=("a", "b", "c")),
        op("UPVOTE", "i1", 2, evidence=("b", "d")),
        op("DOWNVOTE", "i1", 3, evidence=("b", "e")),
        add("i2", 4, evidence=("f",)),
    ]
    apply(store, ops)
    assert store.erase(forgetting("b", "d", "unknown"), 7)
    assert rows(store, "SELECT id, support, erased_evidence FROM insights ORDER BY id") == [("i1", 2, 2), ("i2", 1, 0)]
    assert rows(store, "SELECT op, evidence FROM operations ORDER BY log_offset") == [
        ("ADD", ["a", "c"]),
        ("UPVOTE", []),
        ("DOWNVOTE", ["e"]),
        ("ADD", ["f"]),
    ]
    insight = store.get("i1")
    assert insight is not None and (insight.support, insight.state) == (2, "candidate")


def test_a_second_time_nothing_is_left_to_do(store: Insights) -> None:
    apply(store, [add("i1", evidence=("a",), content=f"Calls for {NAME} fail.")])
    assert store.erase(forgetting("a"), 7)
    assert not store.erase(forgetting("a"), 7)
    assert rows(store, "SELECT count(*) FROM operations") == [(2,)]


def test_a_lesson_that_tells_of_the_subject_loses_its_words_and_is_archived_with_that_reason(store: Insights) -> None:
    claim = Claim(source="desk", tool="pay", atoms=(Atom(feature="args.to", op="eq", value=NAME),))
    apply(store, [add("i1", claim=claim, content="pay fails."), add("i2", 2), add("i3", 3, content=f"Ask {NAME}.")])
    assert store.erase(forgetting(), 7)
    assert rows(store, "SELECT id, content, claim, state, valid_to FROM insights WHERE id <> 'i2' ORDER BY id") == [
        ("i1", ERASED, None, "archived", 9),
        ("i3", ERASED, None, "archived", 9),
    ]
    assert rows(
        store, "SELECT insight_id, op, reason, state_before, state_after FROM history WHERE actor = 'forget'"
    ) == [
        ("i1", "ARCHIVE", "erasure", "candidate", "archived"),
        ("i3", "ARCHIVE", "erasure", "candidate", "archived"),
    ]
    assert rows(store, "SELECT count(*) FROM operations WHERE content = '[erased]' AND claim IS NULL") == [(2,)]
    assert rows(store, "SELECT content FROM lessons") == [("Calls of swap like i2 fail.",)]


def test_of_an_agent_only_claims_about_it_tell(store: Insights) -> None:
    about = Claim(source="desk", tool="pay", atoms=(Atom(feature="agent", op="eq", value="bot"),))
    apply(store, [add("i1", claim=about), add("i2", 2, content="A bot is slow.")])
    store.erase(forgetting(erasure=Erasure(what="agent", value="bot")), 7)
    assert rows(store, "SELECT id FROM insights WHERE content = '[erased]'") == [("i1",)]


def test_what_is_learnt_again_later_has_its_words_again(store: Insights) -> None:
    said = f"Calls for {NAME} fail."
    apply(store, [add("i1", content=said)])
    store.erase(forgetting(), 7)
    apply(store, [add("i1", 20, content=said)], first=1)
    assert rows(store, "SELECT content, state FROM insights") == [(said, "candidate")]


def test_an_edit_of_the_same_batch_position_is_not_folded_again_after_the_erasure(store: Insights) -> None:
    ops = [add("i1", content=f"Calls for {NAME} fail.", evidence=("a",))]
    apply(store, ops)
    store.erase(forgetting("a"), 7)
    assert apply(store, ops) == [("applied", "")]
    assert rows(store, "SELECT content, evidence FROM operations WHERE op = 'ADD'") == [(ERASED, [])]


def test_the_bytes_leave_the_file_when_it_is_opened_next(store: Insights, tmp_path: Path) -> None:
    file = tmp_path / "live.duckdb"
    store.cursor().execute("SET GLOBAL force_compression = 'uncompressed'")  # so that bytes show what is there
    apply(store, [add(f"i{n}", n, content=f"{NAME} {n} was here.", evidence=(f"event{n:027}",)) for n in range(300)])
    store.close()
    assert NAME.encode() in file.read_bytes()
    store = opened(file)
    store.cursor().execute("SET GLOBAL force_compression = 'uncompressed'")
    apply(store, [add("stays", 999, content="Swaps fail.", evidence=("kept",))], first=300)
    store.erase(forgetting(*(f"event{n:027}" for n in range(300))), 400)
    store.close()
    store = opened(file)
    assert rows(store, f"SELECT count(*) FROM meta WHERE name = '{NOTE}'") == [(0,)]
    assert rows(store, "SELECT count(*), count(*) FILTER (WHERE content = '[erased]') FROM insights") == [(301, 300)]
    assert store.progress().resume == 301
    apply(store, [op("UPVOTE", "stays", 1_000)], first=301)
    store.close()
    left = b"".join(found.read_bytes() for found in tmp_path.rglob("*") if found.is_file())
    assert b"Marmaduke" not in left
    assert b"event0000" not in left


KILLED = """
import os, signal, sys
from pathlib import Path
import fluvial.sinks.insights_erasure as erasure
from support.lessons import opened
moment = sys.argv[2]
write = erasure.write_snapshot
def killed(*arguments):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
erasure.write_snapshot = killed
opened(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_while_the_file_is_written_anew_leaves_a_whole_one(store: Insights, tmp_path: Path, moment: str) -> None:
    file = tmp_path / "live.duckdb"
    apply(store, [add("i1", content=f"Calls for {NAME} fail.", evidence=("a",)), add("i2", 2)])
    store.erase(forgetting("a"), 7)
    store.close()
    tests = Path(__file__).parents[1]
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file), moment], cwd=tests, check=False)
    assert killed.returncode == -signal.SIGKILL
    store = opened(file)
    assert rows(store, "SELECT id, content FROM insights ORDER BY id")[0] == ("i1", ERASED)
    store.close()
    assert b"Marmaduke" not in b"".join(found.read_bytes() for found in tmp_path.rglob("*") if found.is_file())
    assert not file.with_name(f"{file.name}.wal").exists()


def test_a_file_from_before_there_was_erasure_gets_the_column(tmp_path: Path) -> None:
    store = opened(tmp_path / "live.duckdb")
    apply(store, [add("i1")])
    store.close()
    with duckdb.connect(str(tmp_path / "live.duckdb")) as old:
        old.execute("DROP VIEW lessons")
        old.execute("ALTER TABLE insights DROP COLUMN erased_evidence")
    assert rows(opened(tmp_path / "live.duckdb"), "SELECT id, erased_evidence FROM lessons") == [("i1", 0)]
