"""Keep: operations become insights once, whatever ends a worker; the snapshot is young; the rest is put aside."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from aiokafka import AIOKafkaProducer
from msgspec.structs import replace
from support.lessons import add, drift, embed, folded, history, op
from support.river import River

from fluvial.schemas.codec import encode
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import DEAD_LETTERS, INSIGHT_OPS, KEEP
from fluvial.sinks.insights import Insights, InUse
from fluvial.sinks.insights_query import ask
from fluvial.streams.admin import ensure_topics
from fluvial.streams.epochs import origin_of
from fluvial.streams.keep import Keep, Shelf
from fluvial.streams.keep import embed as embed_with_the_model
from fluvial.streams.partition import TICK_HEADER
from fluvial.streams.state import State
from fluvial.streams.turn import Arrival, Output, Turn


def keep_in(data: Path, kind: type[Keep] = Keep, broker: str = "broker.test:9092", **hop: Any) -> Keep:
    return kind(broker, live=data / "keep" / "live.duckdb", snapshot=data / "insights.duckdb", embed=embed, **hop)


@pytest.fixture
async def keep(tmp_path: Path) -> AsyncIterator[Keep]:
    keep = keep_in(tmp_path)
    assert await keep.stored_progress(0, Progress(resume=0)) == Progress(resume=0)
    yield keep
    keep.close_partition(0)


def turn(ops: Sequence[InsightOp], first: int = 0) -> Turn:
    return Turn("keep", 0, State(), Progress(resume=first + len(ops), slot=7, read=first + len(ops)))


def fold(keep: Keep, ops: Sequence[InsightOp], first: int = 0, tick: Tick | None = None) -> Turn:
    """One turn, as the hop drives it."""
    one = turn(ops, first)
    for offset, record in enumerate(ops, start=first):
        keep.on_record(one, Arrival(record, "key", "insight-ops", 0, offset, 5, encode(record)))
    if tick is not None:
        keep.on_tick(one, tick)
    keep.before_commit(one)
    return one


def in_snapshot(data: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(data / "insights.duckdb"), read_only=True) as plain:
        return plain.execute(query).fetchall()


def live(data: Path, query: str) -> list[tuple[object, ...]]:
    answer = ask(query, data / "keep", data / "insights.duckdb")
    assert answer.source == "live"
    return answer.rows


def test_operations_become_insights_that_answer_at_once(keep: Keep, tmp_path: Path) -> None:
    one = fold(keep, [add("i1"), op("UPVOTE", "i1", 2), drift("swap", 3)])
    assert (one.outputs, one.progress.dead, one.progress.duplicate) == ([], 0, 0)
    assert live(tmp_path, "SELECT id, confidence FROM lessons") == [("i1", 0.55)]


def test_what_cannot_be_applied_is_put_aside_with_the_reason(keep: Keep) -> None:
    one = fold(keep, [op("UPVOTE", "i9"), add("i1"), replace(add("i2"), content=None)])
    letters = [output.value.decode() for output in one.outputs if isinstance(output, Output)]
    assert [output.topic for output in one.outputs if isinstance(output, Output)] == [DEAD_LETTERS] * 2
    assert "UPVOTE of the insight 'i9', which is unknown" in letters[0]
    assert "ADD of the insight 'i2' without content" in letters[1]
    assert one.progress.dead == 2


def test_what_comes_twice_is_counted_and_changes_nothing(keep: Keep, tmp_path: Path) -> None:
    fold(keep, [add("i1"), op("UPVOTE", "i1", 2)])
    one = fold(keep, [op("UPVOTE", "i1", 2)], first=2)
    assert one.progress.duplicate == 1
    assert live(tmp_path, "SELECT confidence FROM insights") == [(0.7,)]


async def test_the_store_keeps_the_progress_with_its_counts(keep: Keep, tmp_path: Path) -> None:
    one = fold(keep, [op("UPVOTE", "i9"), add("i1"), add("i1")])
    assert (one.progress.dead, one.progress.duplicate) == (1, 1)
    keep.close_partition(0)
    assert await keep.stored_progress(0, Progress(resume=0)) == one.progress


def test_a_flush_writes_the_snapshot_at_once(keep: Keep, tmp_path: Path) -> None:
    fold(keep, [add("i1")], tick=Tick(slot=1, at=1))
    assert in_snapshot(tmp_path, "SELECT count(*) FROM insights") == [(0,)]
    fold(keep, [add("i2")], first=1, tick=Tick(slot=2, at=2, flush=True))
    assert in_snapshot(tmp_path, "SELECT count(*) FROM insights") == [(2,)]


def test_the_snapshot_is_there_from_the_start_and_whole_after_the_end(keep: Keep, tmp_path: Path) -> None:
    assert in_snapshot(tmp_path, "SELECT count(*) FROM lessons") == [(0,)]
    fold(keep, [add("i1")])
    keep.close_partition(0)
    assert in_snapshot(tmp_path, "SELECT count(*) FROM lessons") == [(1,)]
    assert not (tmp_path / "keep" / "quack.json").exists()


def test_a_snapshot_is_written_only_when_it_is_old_and_something_has_changed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "keep" / "live.duckdb", tmp_path / "insights.duckdb", embed, 0)
    shelf.refresh()
    first = (tmp_path / "insights.duckdb").stat().st_ino
    shelf.refresh()
    shelf.changed()
    shelf.refresh(older_than=60.0)
    assert (tmp_path / "insights.duckdb").stat().st_ino == first
    time.sleep(0.02)
    shelf.refresh(older_than=0.01)
    assert (tmp_path / "insights.duckdb").stat().st_ino != first
    shelf.close()


def test_secrets_do_not_come_into_memory(keep: Keep, tmp_path: Path) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 12
    fold(keep, [op("DIRECTIVE", "rule", reason="operator", content=f"Use the key {secret} for quotes.")])
    ((content,),) = live(tmp_path, "SELECT content FROM insights")
    assert secret not in str(content)
    assert "[redacted:" in str(content)
    assert live(tmp_path, f"SELECT count(*) FROM operations WHERE contains(content, '{secret}')") == [(0,)]


async def test_the_next_owner_waits_until_the_last_has_closed_the_file(keep: Keep, tmp_path: Path) -> None:
    tries = 0

    class Busy(Insights):
        def __init__(self, *arguments: Any) -> None:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise InUse("in use")
            super().__init__(*arguments)

    keep.close_partition(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fluvial.streams.keep.Insights", Busy)
        assert await keep.stored_progress(0, Progress(resume=0)) == Progress(resume=0)
    assert tries == 3


def test_the_real_model_is_loaded_for_the_first_text() -> None:
    vectors = embed_with_the_model(["Swaps fail when gas is above the limit.", "Bridges are slow."])
    assert vectors.shape == (2, 384)


# On a broker


class Source(River):
    """insight-ops as watch and distil write it: records of one origin, ticks of all."""

    ORIGINS = tuple(origin_of(hop.name, n) for hop in KEEP.upstream() for n in range(hop.source.partitions))

    async def write(self, ops: Sequence[InsightOp], flush: bool = False) -> None:
        """Operations in one epoch, closed by a tick of every origin."""
        producer = AIOKafkaProducer(bootstrap_servers=self.broker, enable_idempotence=True)
        await producer.start()
        topic, epoch = INSIGHT_OPS.named(self.prefix), b"%d" % self._slot
        for one in ops:
            await producer.send(topic, encode(one), partition=0, headers=[("origin", b"distil/0"), ("epoch", epoch)])
        self._slot += 1
        tick = Tick(slot=self._slot, at=self._slot * 1_000_000, flush=flush)
        for origin in self.ORIGINS:
            headers = [TICK_HEADER, ("origin", origin.encode()), ("epoch", b"%d" % tick.slot)]
            await producer.send(topic, encode(tick), partition=0, headers=headers)
        await producer.stop()

    async def run(self, data: Path, kind: type[Keep] = Keep, **own: Any) -> Keep:
        keep = keep_in(data, kind, self.broker, prefix=self.prefix, fatal=self.fatal.append, **own)
        await keep.start()
        self._running.append(keep)
        return keep

    async def has_read(self, n: int, *, flushed: bool = False) -> Progress:
        async def enough() -> bool:
            progress = await self.progress(KEEP)
            return bool(progress) and progress[-1].read >= n and (not flushed or progress[-1].flushed == self._slot)

        await self.until(enough)
        return (await self.progress(KEEP))[-1]


@pytest.fixture
async def source(kafka: str) -> AsyncIterator[Source]:
    source = Source(kafka)
    await asyncio.to_thread(ensure_topics, kafka, prefix=source.prefix)
    yield source
    await source.stop()


async def test_on_a_broker_the_log_becomes_the_snapshot_and_dead_letters(source: Source, tmp_path: Path) -> None:
    ops = history(300)
    await source.write(ops[:150])
    await source.run(tmp_path)
    await source.write(ops[150:], flush=True)
    progress = await source.has_read(300, flushed=True)
    stored = in_snapshot(tmp_path, "SELECT id, content, state, confidence, helpful, harmful FROM insights ORDER BY id")
    expected = [(i.id, i.content, i.state, i.confidence, i.helpful, i.harmful) for i in folded(ops).values()]
    assert stored == sorted(expected)
    letters = await source.read(DEAD_LETTERS)
    assert len({letter.id for letter in letters}) == len(letters) == progress.dead > 0
    assert source.fatal == []


async def test_the_snapshot_follows_by_itself_while_operations_come(source: Source, tmp_path: Path) -> None:
    await source.run(tmp_path, snapshot_seconds=0.1)
    await source.write([add("i1")])

    async def followed() -> bool:
        return in_snapshot(tmp_path, "SELECT count(*) FROM insights") == [(1,)]

    await source.has_read(1)
    await source.until(followed)


class DiesBeforeKafka(Keep):
    """Ends after DuckDB's commit and before Kafka's, as a kill -9 between them does."""

    def before_commit(self, turn: Turn) -> None:
        super().before_commit(turn)
        if turn.progress.read:
            raise ConnectionError("killed")


async def test_a_worker_that_ends_between_the_two_commits_loses_and_doubles_nothing(
    source: Source, tmp_path: Path
) -> None:
    ops = [op("UPVOTE", "i1", 1), add("i1", 2), op("UPVOTE", "i1", 3)]
    await source.write(ops)
    dying = await source.run(tmp_path, DiesBeforeKafka)

    async def died() -> bool:
        return bool(source.fatal)

    await source.until(died, even_if_fatal=True)
    await source.stop(dying)
    source.fatal.clear()
    assert await source.read(DEAD_LETTERS) == []
    await source.run(tmp_path)
    await source.has_read(3)
    assert live(tmp_path, "SELECT confidence, helpful FROM insights") == [(0.7, 1)]
    assert [letter.offset for letter in await source.read(DEAD_LETTERS)] == [0]


async def test_a_lost_store_is_built_anew_from_the_log(source: Source, tmp_path: Path) -> None:
    ops = history(120)
    await source.write(ops)
    first = await source.run(tmp_path)
    before = await source.has_read(120)
    await source.stop(first)
    letters = await source.read(DEAD_LETTERS)
    shutil.rmtree(tmp_path / "keep")
    (tmp_path / "insights.duckdb").unlink()
    await source.run(tmp_path)
    await source.write([add("new", 999)])
    after = await source.has_read(121)
    assert live(tmp_path, "SELECT count(*) FROM operations") == [(121,)]
    assert live(tmp_path, "SELECT count(*) FROM insights") == [(len(folded([*ops, add("new", 999)])),)]
    assert after.dead == before.dead
    assert {letter.id for letter in await source.read(DEAD_LETTERS)} == {letter.id for letter in letters}
