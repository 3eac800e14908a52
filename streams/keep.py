"""Keep: operations to insights, in DuckDB, and the insights to whoever asks.

There is one partition and one writer: the worker that has the partition has the file. The store keeps the progress of
the log in the same transaction as the fold, so a crash between it and Kafka only repeats a batch, whose operations the
store knows by their ids.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import stamina
import structlog
from mode import Service

from fluvial.processors.embed import Embedder
from fluvial.processors.erasure import tells
from fluvial.processors.expel import step
from fluvial.schemas.erasure import Erasure
from fluvial.schemas.ids import stable_id
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.progress import Progress
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import KEEP
from fluvial.sinks.insights import Embed, Insights, InUse, Vectors
from fluvial.sinks.insights_erasure import Forgetting
from fluvial.sinks.quack import NotServed, Quack
from fluvial.sinks.snapshot import write_snapshot
from fluvial.streams.hop import Hop
from fluvial.streams.purge import purge_later, purge_what_is_due
from fluvial.streams.turn import Arrival, Turn

log = structlog.get_logger(__name__)

HANDOVER_SECONDS = 30.0
"""How long to wait for the worker that had the partition before to close the file."""


@cache
def _model() -> Embedder:
    return Embedder()


def embed(texts: Sequence[str]) -> Vectors:
    """Vectors of texts, float32[n, 384], by the project's model, which is loaded at the first text."""
    return _model().embed(texts)


class Shelf:
    """What the owner of the partition holds open: the store, its server and its snapshot."""

    def __init__(self, live: Path, snapshot: Path, embed: Embed, quack_port: int) -> None:
        """Raises InUse and Unreadable (sinks/insights.py), OSError."""
        self._scratch = live.parent / "scratch"
        self._snapshot = snapshot
        self._writing = Lock()
        self._changed_at: float | None = 0.0
        """When the oldest change that is not in the snapshot was made; None: it has everything."""
        self.insights = Insights(live, step, embed)
        self._quack = self._serve(live.parent, quack_port)

    def _serve(self, folder: Path, port: int) -> Quack | None:
        try:
            quack = Quack(self.insights.cursor(), folder, port, self._scratch)
        except NotServed as error:
            log.warning(str(error), snapshot=str(self._snapshot))
            return None
        if port not in (0, quack.port):
            log.warning("the port of the live insights is in use: FLUVIAL_QUACK_PORT chooses another", port=port)
        log.info("the live insights answer SQL", address=quack.address)
        return quack

    def changed(self) -> None:
        """Something was committed."""
        if self._changed_at is None:
            self._changed_at = time.monotonic()

    def refresh(self, older_than: float = 0.0) -> None:
        """Write the snapshot if it has been behind for so many seconds."""
        with self._writing:
            if self._changed_at is None or time.monotonic() - self._changed_at < older_than:
                return
            self._changed_at = None
            with self.insights.cursor() as connection:
                write_snapshot(connection, self._snapshot, self._scratch)

    def close(self) -> None:
        self.refresh()
        if self._quack is not None:
            self._quack.stop()
        self.insights.close()


class Keep(Hop):
    """Folds every operation once, dead-letters those that cannot be applied, and keeps the snapshot young."""

    plan = KEEP

    def __init__(
        self,
        broker: str,
        *,
        live: Path,
        snapshot: Path,
        embed: Embed = embed,
        quack_port: int = 0,
        snapshot_seconds: float = 30.0,
        **hop: Any,
    ) -> None:
        super().__init__(broker, **hop)
        self._live = live
        self._snapshot = snapshot
        self._embed = embed
        self._quack_port = quack_port
        self._snapshot_seconds = snapshot_seconds
        self._shelf: Shelf | None = None
        self._arrivals: list[Arrival[InsightOp]] = []
        self._flush = False
        self._erased = False

    async def stored_progress(self, partition: int, known: Progress) -> Progress | None:
        """Open the store: the partition is ours now. Another worker of this machine may still be closing it."""
        async for attempt in stamina.retry_context(on=InUse, attempts=None, timeout=HANDOVER_SECONDS, wait_max=1.0):
            with attempt:
                self._shelf = await asyncio.to_thread(Shelf, self._live, self._snapshot, self._embed, self._quack_port)
        assert self._shelf is not None
        await asyncio.to_thread(self._shelf.refresh)
        return self._shelf.insights.progress()

    def close_partition(self, partition: int) -> None:
        shelf, self._shelf = self._shelf, None
        if shelf is not None:
            shelf.close()

    def on_record(self, turn: Turn, arrival: Arrival[InsightOp]) -> None:
        self._arrivals.append(arrival)

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        self._flush = self._flush or tick.flush
        purge_what_is_due(turn, self.broker, self.prefix, self.life)
        if tick.erase is not None:
            self._erase(turn, tick, tick.erase)

    def _erase(self, turn: Turn, tick: Tick, erasure: Erasure) -> None:
        """Forget where the tick stands: after the operations before it, and before those behind it."""
        assert self._shelf is not None
        self._fold(turn)
        forgetting = Forgetting(
            id=stable_id(erasure, tick.slot),
            at=tick.at,
            event_ids=tick.erased,
            tells=lambda words, claim: tells(words, claim, erasure),
        )
        self._erased = self._shelf.insights.erase(forgetting, turn.progress.resume) or self._erased
        purge_later(turn, tick)

    def before_commit(self, turn: Turn) -> None:
        """Fold what the turn has brought; durable before the turn's own transaction begins."""
        self._fold(turn, last=True)
        flush, self._flush = self._flush, False
        erased, self._erased = self._erased, False
        if erased:
            self._reopen()
        if flush:
            assert self._shelf is not None
            self._shelf.refresh()

    def _reopen(self) -> None:
        """Opened again, the file is written anew, and the snapshot after it."""
        with self.life.patient():
            self.close_partition(0)
            self._shelf = Shelf(self._live, self._snapshot, self._embed, self._quack_port)
            self._shelf.refresh()

    def _fold(self, turn: Turn, last: bool = False) -> None:
        """Fold what has come; durable on return. Only at the end of a turn (`last`) has the store come as far as it."""
        assert self._shelf is not None
        arrivals, self._arrivals = self._arrivals, []
        clean = [(arrival.offset, self.redactor.operation(arrival.record)) for arrival in arrivals]
        batch = self._shelf.insights.fold(clean)
        for arrival, outcome in zip(arrivals, batch.outcomes, strict=True):
            if outcome.kind == "refused":
                turn.dead_letter(arrival, outcome.reason)
            else:
                turn.count("duplicate" if outcome.kind == "duplicate" else "done")
        self._shelf.insights.commit(batch, turn.progress if last else self._shelf.insights.progress())
        if batch.operations:
            self._shelf.changed()

    @Service.timer(1.0)  # type: ignore[untyped-decorator]
    async def _keep_young(self) -> None:
        shelf = self._shelf
        if shelf is not None:
            await asyncio.to_thread(shelf.refresh, self._snapshot_seconds)
