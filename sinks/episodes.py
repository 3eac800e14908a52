"""The episode store: a LanceDB table `episodes` in a folder or on object storage.

One row an episode, merged by id, first wins. Analysts meet Episode's own field names; times are timestamps in
microseconds UTC, `metrics`, `labels`, `context`, `features` are JSON text, as `args_json` and `outcome_json` are.
Several processes merge at once; one of them (the owner of the first partition) calls `maintain`.

There is no index on `id`, and merges are told to use none: with a BTREE, merges of several writers beside a compaction
left ids twice (LanceDB 0.40: 14 of 614 and 11 of 611 rows in a minute; without, none in five such runs). Scanning the
ids instead costs 20 ms a batch at 10,000 rows, 60 ms at 100,000 and .2 s at 1,000,000.
"""

import fcntl
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import lancedb
import msgspec
import numpy as np
import pyarrow as pa
from lancedb.expr import Expr, col, lit
from lancedb.index import FTS
from lancedb.query import MatchQuery
from lancedb.rerankers import RRFReranker
from numpy.typing import NDArray

from fluvial.schemas.episode import Episode
from fluvial.schemas.erasure import Erasure
from fluvial.sinks.episodes_erasure import Files, erase, may_concern

TABLE = "episodes"
DIMENSIONS = 384
KEPT_VERSIONS = timedelta(hours=1)
"""How long a superseded version stays readable; a reader or a paused writer may still be on it."""
FEWEST_PIECES = 48
INDEX_CACHE_BYTES = 64 << 20
METADATA_CACHE_BYTES = 32 << 20

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = pa.timestamp("us", tz="UTC")
_PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}
_JSON = frozenset({"metrics", "labels", "context", "features"})
_REQUIRED = ("source", "run_id", "tool", "status", "text", "reflection_source", "embedding_model")
_OPTIONAL = ("task_id", "agent_id", "model", "call_id", "error_type", "error_message", "chain", "token_pair", "regime")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata=_PRIMARY_KEY),
        *(pa.field(name, pa.string(), nullable=False) for name in _REQUIRED),
        *(pa.field(name, pa.string()) for name in _OPTIONAL),
        *(pa.field(name, pa.string(), nullable=False) for name in ("args_json", "outcome_json", *sorted(_JSON))),
        pa.field("started_at", _TIME, nullable=False),
        pa.field("ended_at", _TIME),
        pa.field("time_given", pa.bool_(), nullable=False),
        pa.field("seq", pa.int64()),
        pa.field("reward", pa.float64()),
        pa.field("importance", pa.float64(), nullable=False),
        pa.field("taint", pa.float64(), nullable=False),
        pa.field("redactions", pa.int32(), nullable=False),
        pa.field("log_partition", pa.int32(), nullable=False),
        pa.field("log_offset", pa.int64(), nullable=False),
        pa.field("schema_version", pa.int32(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), DIMENSIONS), nullable=False),
    ]
)
_FIELDS = [name for name in SCHEMA.names if name != "vector"]

Vectors = NDArray[np.float32]
Position = tuple[int, int]
"""Partition and offset in `tool-calls`."""


class NoEpisodes(LookupError):
    """There is no table of episodes in the folder yet."""


@dataclass(frozen=True)
class Found:
    """An episode and how well it answers: the sum of 1 / (60 + rank) over the two rankings, at most about .033."""

    episode: Episode
    score: float


class EpisodeStore:
    """An open table. Every call sees what other processes have committed before it."""

    def __init__(self, table: Any, folder: Path) -> None:
        self._table = table
        self._folder = folder
        self._files = Files(folder)
        self._merging = Lock()

    @classmethod
    def create(cls, folder: Path) -> "EpisodeStore":
        """Open the table for writing; make it where there is none.

        Writers that begin at once wait for each other: LanceDB 0.40 lets the second overwrite the first one's table.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".create.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return cls(_connect(folder).create_table(TABLE, schema=SCHEMA, exist_ok=True), folder)

    @classmethod
    def open(cls, folder: Path) -> "EpisodeStore":
        """Open the table for reading. Raises NoEpisodes where there is none."""
        none = NoEpisodes(f"There are no episodes in {folder} yet: start `fluvial up` and publish tool calls.")
        if not (folder / f"{TABLE}.lance").is_dir():
            raise none
        try:
            return cls(_connect(folder).open_table(TABLE), folder)
        except ValueError as error:
            if "was not found" in str(error):  # its first version is not written yet
                raise none from error
            raise

    def merge(self, episodes: Sequence[Episode], vectors: Vectors) -> int:
        """Add the episodes whose ids are new; durable when it returns. Returns how many were added.

        `vectors`: float32[len(episodes), 384]. Of one id twice in `episodes` the first counts.
        """
        firsts = {episode.id: place for place, episode in reversed(list(enumerate(episodes)))}
        places = sorted(firsts.values())
        rows = _to_arrow([episodes[place] for place in places], vectors[places])
        with self._merging, self._files.writing():  # merges at once only make each other begin anew
            result = self._table.merge_insert("id").when_not_matched_insert_all().use_index(False).execute(rows)
        return int(result.num_inserted_rows)

    def positions(self, ids: Iterable[str]) -> dict[str, Position]:
        """Where in the log the stored episodes of these ids came from; ids that are not stored are left out."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        columns = ["id", "log_partition", "log_offset"]
        rows = self._table.search().where(col("id").isin(wanted)).select(columns).limit(len(wanted)).to_arrow()
        return {row["id"]: (row["log_partition"], row["log_offset"]) for row in rows.to_pylist()}

    def get(self, event_id: str) -> Episode | None:
        rows = self._table.search().where(col("id") == lit(event_id)).select(_FIELDS).limit(1).to_arrow().to_pylist()
        return _episode(rows[0]) if rows else None

    def of_run_or_call(self, name: str, limit: int) -> list[Episode]:
        """Episodes whose run id or call id this is, at most so many, in the order of their time."""
        condition = (col("run_id") == lit(name)) | (col("call_id") == lit(name))
        rows = self._table.search().where(condition).select(_FIELDS).limit(limit).to_arrow().to_pylist()
        return sorted(map(_episode, rows), key=lambda one: (one.started_at, one.seq or 0, one.id))

    def all(self) -> Iterator[Episode]:
        """Every episode of one version of the table, in no order."""
        for batch in self._table.search().select(_FIELDS).to_batches(1_024):
            yield from map(_episode, batch.to_pylist())

    def has_partition(self, partition: int) -> bool:
        """Whether any stored episode came from this partition of `tool-calls`, or did before `erase` took the last."""
        return self._has_rows(partition) or self._emptied(partition).exists()

    def candidates(
        self, erasure: Erasure, partition: int | None = None, before: int | None = None
    ) -> Iterator[Episode]:
        """Every episode that the erasure concerns, and some others; of one partition, before an offset of it."""
        parts = [] if partition is None else [f"log_partition = {int(partition)}"]
        parts += [] if before is None else [f"log_offset < {int(before)}"]
        condition = may_concern(erasure)
        parts += [] if condition is None else [condition.to_sql() if isinstance(condition, Expr) else condition]
        query = self._table.search().select(_FIELDS)
        if parts:
            query = query.where(" AND ".join(f"({part})" for part in parts))
        for batch in query.to_batches(1_024):
            yield from map(_episode, batch.to_pylist())

    def ids_at(self, partition: int, offsets: Collection[int]) -> list[str]:
        """Ids of the episodes that came from these offsets of a partition."""
        condition = (col("log_partition") == lit(partition)) & col("log_offset").isin(sorted(offsets))
        return [str(name) for name in self._table.search().where(condition).select(["id"]).to_arrow()["id"].to_pylist()]

    def erase(self, partition: int, ids: Sequence[str]) -> None:
        """Delete these episodes of a partition, older versions and index included (sinks/episodes_erasure.py)."""
        erase(self._table, self._files, ids)
        if not self._has_rows(partition):
            self._emptied(partition).touch()

    def versions(self) -> Iterator["EpisodeStore"]:
        """The table as it was in each version that can still be read, the newest included."""
        for version in self._table.list_versions():
            older = _connect(self._folder).open_table(TABLE)
            older.checkout(version["version"])
            yield EpisodeStore(older, self._folder)

    def _has_rows(self, partition: int) -> bool:
        return bool(self._table.count_rows(f"log_partition = {int(partition)}"))

    def _emptied(self, partition: int) -> Path:
        """Goes away with the table, where that is lost."""
        return self._folder / f"{TABLE}.lance" / f"emptied-{partition}"

    def count(self) -> int:
        return int(self._table.count_rows())

    def search(
        self,
        vector: Vectors,
        text: str,
        *,
        equal: Mapping[str, str] | None = None,
        since: int | None = None,
        limit: int = 10,
    ) -> list[Found]:
        """Episodes nearest to a query by meaning (cosine) or words (BM25), the two rankings fused (RRF), best first.

        `vector` is float32[384], `text` not empty. `equal` names columns and the value each must have; `since` is a
        `started_at` in microseconds UTC.
        """
        query = (
            self._table.search(query_type="hybrid")
            .vector(vector)
            .text(MatchQuery(text, "text"))
            .distance_type("cosine")
        )
        condition = _condition(equal or {}, since)
        if condition is not None:
            query = query.where(condition)
        rows = query.rerank(RRFReranker()).limit(limit).to_arrow().drop_columns("vector").to_pylist()
        found = [Found(_episode(row), row["_relevance_score"]) for row in rows]
        return sorted(found, key=lambda one: (-one.score, -one.episode.started_at, one.episode.id))[:limit]

    def maintain(self) -> bool:
        """Compact, index the text and clean up if enough small pieces have come together; whether it was so.

        Each merge adds a fragment, and everything slows down with their number. Compaction rewrites every fragment
        below a million rows, so the more rows there are, the more pieces are left to gather first. For one process
        only; the others go on meanwhile.
        """
        with self._files.maintaining():
            return self._maintain()

    def _maintain(self) -> bool:
        stats = self._table.stats()
        due = min(max(FEWEST_PIECES, stats["num_rows"] // 500), 512)
        if stats["fragment_stats"]["num_fragments"] < due:
            return False
        if not self._table.list_indices():
            self._table.create_index("text", config=FTS())
        self._table.optimize(cleanup_older_than=KEPT_VERSIONS)
        return True


def _connect(folder: Path) -> Any:
    session = lancedb.Session(index_cache_size_bytes=INDEX_CACHE_BYTES, metadata_cache_size_bytes=METADATA_CACHE_BYTES)
    return lancedb.connect(str(folder), read_consistency_interval=timedelta(0), session=session)


def _condition(equal: Mapping[str, str], since: int | None) -> Expr | None:
    parts = [col(name) == lit(value) for name, value in equal.items()]
    if since is not None:
        parts.append(col("started_at") >= lit(_EPOCH + timedelta(microseconds=since)))
    condition = None
    for part in parts:
        condition = part if condition is None else condition & part
    return condition


def _to_arrow(episodes: Sequence[Episode], vectors: Vectors) -> pa.Table:
    columns: dict[str, Any] = {}
    for name in _FIELDS:
        values = [getattr(episode, name) for episode in episodes]
        if name in _JSON:
            values = [msgspec.json.encode(value).decode() for value in values]
        kind = SCHEMA.field(name).type
        columns[name] = pa.array(values, pa.int64()).cast(kind) if kind == _TIME else pa.array(values, kind)
    flat = np.ascontiguousarray(vectors, np.float32).ravel()
    columns["vector"] = pa.FixedSizeListArray.from_arrays(flat, DIMENSIONS)
    return pa.table(columns, schema=SCHEMA)


def _episode(row: Mapping[str, Any]) -> Episode:
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        value = row[name]
        if name in _JSON:
            value = msgspec.json.decode(value)
        elif isinstance(value, datetime):
            value = (value - _EPOCH) // timedelta(microseconds=1)
        fields[name] = value
    return msgspec.convert(fields, Episode)
