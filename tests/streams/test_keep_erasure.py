"""Keep forgets where the order stands, and what it leaves on the disk holds nothing of it."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import duckdb
import pytest
from support.lessons import add, embed, op

from fluvial.schemas.codec import encode
from fluvial.schemas.erasure import ERASED, Erasure
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.sinks.insights_query import ask
from fluvial.streams.keep import Keep
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Turn

NAME = "Marmaduke7c1e"
ORDER = Tick(slot=8, at=80, erase=Erasure(what="subject", value=NAME), erased=("e1", "e2"))


@pytest.fixture
async def keep(tmp_path: Path) -> AsyncIterator[Keep]:
    keep = Keep(
        "broker.test:9092", live=tmp_path / "keep" / "live.duckdb", snapshot=tmp_path / "insights.duckdb", embed=embed
    )
    await keep.stored_progress(0, Progress(resume=0))
    yield keep
    keep.close_partition(0)


def handle(keep: Keep, items: Sequence[InsightOp | Tick], first: int = 0, commit: bool = True) -> Turn:
    """One turn, as the hop drives it."""
    ends = first + sum(isinstance(item, InsightOp) for item in items)
    turn = Turn("keep", 0, State(), Progress(resume=ends, slot=7))
    offset = first
    for item in items:
        if isinstance(item, Tick):
            keep.on_tick(turn, item)
        else:
            keep.on_record(turn, Arrival(item, "key", "insight-ops", 0, offset, 5, encode(item)))
            offset += 1
    if commit:
        keep.before_commit(turn)
    return turn


def live(data: Path, query: str) -> list[tuple[object, ...]]:
    answer = ask(query, data / "keep", data / "insights.duckdb")
    assert answer.source == "live"
    return answer.rows


OPS = [
    add("i1", content=f"Calls for {NAME} fail.", evidence=("e1",)),
    add("i2", 2, evidence=("e1", "e3")),
    op("UPVOTE", "i2", 3, evidence=("e2",)),
]


def test_what_stands_before_the_order_is_forgotten_and_what_stands_behind_it_is_not(keep: Keep, tmp_path: Path) -> None:
    turn = handle(keep, [*OPS, ORDER, add("i3", 4, content=f"{NAME} came back.", evidence=("e4",))])
    assert live(tmp_path, "SELECT id, content, state, support, erased_evidence FROM insights ORDER BY id") == [
        ("i1", ERASED, "archived", 0, 1),
        ("i2", "Calls of swap like i2 fail.", "candidate", 1, 2),
        ("i3", f"{NAME} came back.", "candidate", 1, 0),
    ]
    assert (turn.progress.done, turn.progress.dead) == (4, 0)


def test_the_files_hold_nothing_of_it_after_the_turn(keep: Keep, tmp_path: Path) -> None:
    handle(keep, OPS)
    handle(keep, [ORDER, Tick(slot=9, at=90, flush=True)], first=3)
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or NAME.encode() not in file.read_bytes(), file
    with duckdb.connect(str(tmp_path / "insights.duckdb"), read_only=True) as snapshot:
        assert snapshot.execute("SELECT content FROM insights WHERE id = 'i1'").fetchall() == [(ERASED,)]
    handle(keep, [op("UPVOTE", "i2", 9)], first=3)
    assert live(tmp_path, "SELECT count(*) FROM operations WHERE insight_id = 'i2'") == [(3,)]


async def test_a_turn_that_ended_between_the_two_commits_comes_to_the_same(keep: Keep, tmp_path: Path) -> None:
    turn = handle(keep, [*OPS, ORDER], commit=False)
    assert keep._shelf is not None
    assert keep._shelf.insights.progress() == Progress(resume=0)
    keep.close_partition(0)
    again = Keep("broker.test:9092", live=keep._live, snapshot=keep._snapshot, embed=embed)
    assert await again.stored_progress(0, Progress(resume=0)) == Progress(resume=0)
    repeated = handle(again, [*OPS, ORDER])
    assert repeated.progress.done == turn.progress.done == 3
    assert live(tmp_path, "SELECT id, content, support, erased_evidence FROM insights ORDER BY id") == [
        ("i1", ERASED, 0, 1),
        ("i2", "Calls of swap like i2 fail.", 1, 2),
    ]
    assert live(tmp_path, "SELECT count(*) FROM changes WHERE state_after = 'archived'") == [(1,)]
    again.close_partition(0)


def test_an_order_that_concerns_no_lesson_leaves_the_file_open(keep: Keep) -> None:
    handle(keep, OPS)
    shelf = keep._shelf
    handle(keep, [Tick(slot=8, at=80, erase=Erasure(what="run", value="elsewhere"), erased=("e9",))], first=3)
    assert keep._shelf is shelf
