"""The insights in DuckDB: the fold of insight-ops with embeddings and the trail of every operation.

One process opens the file, and one thread writes. A batch is folded in memory, and then insights, operations and the
hop's progress are written in one transaction, which is on the disk when `commit` returns.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
from msgspec import convert, json
from msgspec.structs import asdict
from numpy.typing import NDArray

from fluvial.schemas.codec import decode, encode
from fluvial.schemas.erasure import ERASED
from fluvial.schemas.insight import Category, Inapplicable, Insight, InsightOp
from fluvial.schemas.progress import Progress
from fluvial.sinks.extensions import load
from fluvial.sinks.insights_erasure import NOTE, REWORD, Forgetting, is_due, loss, trail, write_anew
from fluvial.sinks.insights_schema import SCHEMA_VERSION, STATEMENTS

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]
"""Texts to unit vectors, float32[n, 384]."""
Step = Callable[[Mapping[str, Insight], InsightOp], list[Insight]]
"""The insights that an operation changes, out of all by id; raises Inapplicable (processors/expel.py)."""

_FIELDS = Insight.__struct_fields__
_INSERT = "INSERT INTO {} BY NAME SELECT * FROM batch_rows"
_REPLACE = "INSERT OR REPLACE INTO {} BY NAME SELECT * FROM batch_rows"


class InUse(RuntimeError):
    """Another process has the file open."""


class Unreadable(RuntimeError):
    """The file cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation; `reason` says why one was refused."""

    kind: Literal["applied", "duplicate", "refused"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """Folded operations, ready to be written: outcomes in their order, and what changes in the store."""

    outcomes: list[Outcome] = field(default_factory=list)
    insights: dict[str, Insight] = field(default_factory=dict)
    vectors: dict[str, Vectors] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Near:
    """An insight and its cosine distance to what was asked: 0 the same, 2 the opposite."""

    insight: Insight
    distance: float


class Insights:
    """The store. Every insight is also held in memory (about 2 KB each, without its embedding)."""

    def __init__(self, path: Path, step: Step, embed: Embed, threads: int = 2, memory: str = "512MB") -> None:
        """Open the file, made if it is not there. Raises InUse, Unreadable."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._step = step
        self._embed = embed
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": threads,
            "memory_limit": memory,
            "python_enable_replacements": False,  # a query must not see the process's variables
        }
        try:
            self._writer = duckdb.connect(str(path), config=settings)
            if is_due(self._writer):
                write_anew(self._writer, path)
                self._writer = duckdb.connect(str(path), config=settings)
        except duckdb.Error as error:
            if "Conflicting lock" in str(error):
                raise InUse(f"{path} is open in another process: stop it first, only one may hold the file.") from error
            raise Unreadable(
                f"{path} cannot be opened ({str(error).splitlines()[0]}). If it is damaged, move it away: it is built "
                "anew from the log."
            ) from error
        load(self._writer, "vss")
        self._make(path)
        self._insights = {insight.id: insight for insight in self._read()}

    def _make(self, path: Path) -> None:
        (found,) = self._writer.execute(
            "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'meta' AND database_name = current_database()"
        ).fetchall()[0]
        version = self._meta("schema_version") if found else str(SCHEMA_VERSION)
        if version != str(SCHEMA_VERSION):
            self._writer.close()
            raise Unreadable(
                f"{path} has schema version {version}, this release writes {SCHEMA_VERSION}: move the file away, and "
                "it is built anew from the log."
            )
        self._writer.begin()
        for statement in STATEMENTS:
            self._writer.execute(statement)
        self._set_meta("schema_version", str(SCHEMA_VERSION))
        self._writer.commit()

    def progress(self) -> Progress:
        """How far the log has been folded; its beginning for a new file."""
        known = self._meta("progress")
        return Progress(resume=0) if known is None else decode(known.encode(), Progress)

    def get(self, insight_id: str) -> Insight | None:
        return self._insights.get(insight_id)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Another connection to the same file, for another thread; it sees what was committed."""
        return self._writer.cursor()

    def fold(self, ops: Sequence[tuple[int, InsightOp]]) -> Batch:
        """Operations with their offsets, in the order of the log. Nothing is changed before `commit`.

        An operation that is known by its id is not applied again: at the offset it had, its outcome is what it was (the
        batch is repeated after a crash), elsewhere it is a duplicate. One that was refused is tried again elsewhere.
        """
        known = self._known([op.op_id for _, op in ops])
        batch = Batch()
        view = ChainMap(batch.insights, self._insights)
        for offset, op in ops:
            place, refused = known.get(op.op_id, (None, None))
            if place is None or (refused is not None and place != offset):
                place, refused = known[op.op_id] = offset, self._fold_one(batch, view, offset, op)
            if place != offset:
                batch.outcomes.append(Outcome("duplicate"))
            else:
                batch.outcomes.append(Outcome("applied") if refused is None else Outcome("refused", refused))
        said = {
            name: insight.content
            for name, insight in batch.insights.items()
            if name not in self._insights or self._insights[name].content != insight.content
        }
        if said:
            batch.vectors.update(zip(said, self._embed(list(said.values())), strict=True))
        return batch

    def _fold_one(self, batch: Batch, view: ChainMap[str, Insight], offset: int, op: InsightOp) -> str | None:
        """Fold one operation into the batch; why it is refused, or None."""
        refused, after = None, []
        try:
            after = self._step(view, op)
        except Inapplicable as error:
            refused = str(error)
        row = asdict(op)
        row.update(log_offset=offset, about=_json(op.about), claim=_json(op.claim), refused=refused)
        batch.operations[op.op_id] = row
        for new in after:
            old = view.get(new.id)
            batch.changes.append(
                {
                    "op_id": op.op_id,
                    "insight_id": new.id,
                    "confidence_before": old.confidence if old else None,
                    "confidence_after": new.confidence,
                    "state_before": old.state if old else None,
                    "state_after": new.state,
                }
            )
            batch.insights[new.id] = new
        return refused

    def commit(self, batch: Batch, progress: Progress) -> None:
        """Write a folded batch and how far it brings the log, as one transaction. Durable on return."""
        new = [i for i in batch.insights.values() if i.id not in self._insights]
        old = [i for i in batch.insights.values() if i.id in self._insights]
        again = [{"id": i.id, "embedding": batch.vectors[i.id]} for i in old if i.id in batch.vectors]
        self._writer.begin()
        try:
            self._with_rows([{**_row(i), "embedding": batch.vectors[i.id]} for i in new], _INSERT.format("insights"))
            self._update([_row(i) for i in old], [name for name in _FIELDS if name != "id"])
            self._update(again, ["embedding"])
            self._with_rows(list(batch.operations.values()), _REPLACE.format("operations"))
            self._with_rows(batch.changes, _INSERT.format("changes"))
            self._set_meta("progress", encode(progress).decode())
            self._writer.commit()
        except BaseException:
            self._roll_back()
            raise
        self._insights.update(batch.insights)

    def erase(self, forgetting: Forgetting, offset: int) -> bool:
        """Take events and words out, as one transaction; whether there were any. `offset`: where the order stands.

        Free blocks of the file keep the bytes until it is opened next: see sinks/insights_erasure.py.
        """
        lost = loss(self._writer, self._insights, forgetting)
        if not lost.insights and not lost.operations:
            return False
        operations, changes = trail(forgetting, offset, lost)
        blank = self._embed([ERASED])[0] if lost.blanked else None
        self._writer.begin()
        try:
            self._update([_row(i) for i in lost.insights.values()], [name for name in _FIELDS if name != "id"])
            self._update([{"id": old.id, "embedding": blank} for old in lost.blanked], ["embedding"])
            self._with_rows(list(lost.operations.values()), REWORD)
            self._with_rows(operations, _INSERT.format("operations"))
            self._with_rows(changes, _INSERT.format("changes"))
            self._set_meta(NOTE, "1")
            self._writer.commit()
        except BaseException:
            self._roll_back()
            raise
        self._insights.update(lost.insights)
        return True

    def nearest(
        self, vector: Vectors, category: Category | None = None, min_confidence: float = 0.5, k: int = 5
    ) -> list[Near]:
        """The k live insights closest in meaning to a vector (float32[384]), exactly; ties by id.

        There are k whenever k meet the filter: without an index nothing is filtered afterwards, and the materialized
        CTE that one would need costs twice the time.
        """
        columns = ", ".join(f"insights.{name}" for name in _FIELDS)
        asked = str(vector.tolist())  # as text: a bound list costs .2 ms an element
        found = self.cursor().execute(
            f"""
            WITH near AS (
                SELECT id, array_cosine_distance(embedding, $vector::FLOAT[384]) AS distance
                FROM insights
                WHERE state IN ('candidate', 'active') AND confidence >= $least
                  AND ($category IS NULL OR category = $category)
                ORDER BY distance, id LIMIT $k
            )
            SELECT distance, {columns} FROM near JOIN insights USING (id) ORDER BY distance, id
            """,
            {"least": min_confidence, "category": category, "vector": asked, "k": k},
        )
        return [Near(_insight(dict(zip(_FIELDS, row, strict=True))), distance) for distance, *row in found.fetchall()]

    def close(self) -> None:
        """Write everything into the file itself and let it go."""
        self._writer.close()

    def _roll_back(self) -> None:
        """After a failure. A commit that failed, on a full disk, has rolled back itself."""
        with suppress(duckdb.TransactionException):
            self._writer.rollback()

    def _known(self, op_ids: Sequence[str]) -> dict[str, tuple[int, str | None]]:
        """Offset and refusal of the operations that came before."""
        query = "SELECT op_id, log_offset, refused FROM operations WHERE op_id IN (SELECT op_id FROM batch_rows)"
        rows = self._with_rows([{"op_id": op_id} for op_id in op_ids], query)
        return {op_id: (offset, refused) for op_id, offset, refused in rows}

    def _read(self) -> list[Insight]:
        rows = self._writer.execute(f"SELECT {', '.join(_FIELDS)} FROM insights").fetchall()
        return [_insight(dict(zip(_FIELDS, row, strict=True))) for row in rows]

    def _update(self, rows: list[dict[str, Any]], columns: Sequence[str]) -> None:
        setting = ", ".join(f"{name} = batch_rows.{name}" for name in columns)
        self._with_rows(rows, f"UPDATE insights SET {setting} FROM batch_rows WHERE insights.id = batch_rows.id")

    def _with_rows(self, rows: list[dict[str, Any]], statement: str) -> list[tuple[Any, ...]]:
        """Run a statement on `batch_rows`, if there are any. (As Arrow: a bound list costs .2 ms an element.)"""
        if not rows:
            return []
        self._writer.register("batch_rows", pa.Table.from_pylist(rows))
        try:
            return self._writer.execute(statement).fetchall()
        finally:
            self._writer.unregister("batch_rows")

    def _meta(self, name: str) -> str | None:
        row = self._writer.execute("SELECT value FROM meta WHERE name = ?", [name]).fetchone()
        return None if row is None else str(row[0])

    def _set_meta(self, name: str, value: str) -> None:
        self._writer.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", [name, value]
        )


def _insight(row: dict[str, Any]) -> Insight:
    """The insight in a row of the table `insights` (its embedding apart)."""
    claim = row["claim"]
    return convert({**row, "claim": None if claim is None else json.decode(claim)}, Insight)


def _row(insight: Insight) -> dict[str, Any]:
    return {**asdict(insight), "claim": _json(insight.claim)}


def _json(record: Any) -> str | None:
    return None if record is None else encode(record).decode()
