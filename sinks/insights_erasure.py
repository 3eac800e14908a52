"""Erasure in DuckDB: events leave the evidence, and lessons that speak of what is forgotten lose their words.

Deleted values stay in free blocks of a DuckDB file. So a file in which something was erased says so in its table
`meta`, and is written anew when it is opened next: a whole copy takes its place, or after a kill still the old one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from msgspec import json
from msgspec.structs import replace

from fluvial.schemas.claim import Claim
from fluvial.schemas.erasure import ERASED
from fluvial.schemas.ids import stable_id
from fluvial.schemas.insight import Insight
from fluvial.sinks.snapshot import write_snapshot

NOTE = "erased"
REWORD = """
UPDATE operations
SET content = batch_rows.content, claim = batch_rows.claim, evidence = batch_rows.evidence::VARCHAR[]
FROM batch_rows WHERE operations.op_id = batch_rows.op_id"""
Tells = Callable[[str | None, Claim | None], bool]
"""Whether words and a claim speak of what is forgotten."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """What to forget: events, and what lessons may not tell. `id` is a function of the order; `at` microseconds UTC."""

    id: str
    at: int
    event_ids: Sequence[str]
    tells: Tells


@dataclass(slots=True)
class Loss:
    """What an erasure changes: insights, rows of `operations` by id, and insights that it puts away."""

    insights: dict[str, Insight] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    blanked: list[Insight] = field(default_factory=list)
    """As they were before."""


def loss(connection: duckdb.DuckDBPyConnection, insights: Mapping[str, Insight], forgetting: Forgetting) -> Loss:
    """What this erasure changes in the store; nothing where it was carried out before."""
    found = Loss()
    connection.register("erased_events", pa.table({"event_id": pa.array(forgetting.event_ids, pa.string())}))
    try:
        _evidence(connection, insights, found)
    finally:
        connection.unregister("erased_events")
    query = "SELECT op_id, content, claim, evidence FROM operations WHERE content IS NOT NULL OR claim IS NOT NULL"
    for op_id, content, claim, evidence in connection.execute(query).fetchall():
        if content != ERASED and forgetting.tells(content, _claim(claim)):
            row = found.operations.setdefault(op_id, {"op_id": op_id, "evidence": evidence})
            row.update(content=None if content is None else ERASED, claim=None)
    for name, insight in sorted(insights.items()):
        if insight.content != ERASED and forgetting.tells(insight.content, insight.claim):
            found.blanked.append(insight)
            kept = found.insights.get(name, insight)
            ended = insight.valid_to if insight.valid_to is not None else forgetting.at
            found.insights[name] = replace(kept, content=ERASED, claim=None, state="archived", valid_to=ended)
    return found


def _evidence(connection: duckdb.DuckDBPyConnection, insights: Mapping[str, Insight], found: Loss) -> None:
    touched = """
        SELECT o.op_id, o.content, o.claim, list_filter(o.evidence, e -> NOT list_contains(gone.ids, e))
        FROM operations o JOIN (
            SELECT op_id, list(DISTINCT event_id) AS ids
            FROM (SELECT op_id, unnest(evidence) AS event_id FROM operations) SEMI JOIN erased_events USING (event_id)
            GROUP BY op_id
        ) gone USING (op_id)"""
    columns = ("op_id", "content", "claim", "evidence")
    for row in connection.execute(touched).fetchall():
        found.operations[row[0]] = dict(zip(columns, row, strict=True))
    counted = """
        SELECT c.insight_id, count(DISTINCT e.event_id),
               count(*) FILTER (WHERE o.op = 'UPVOTE' OR c.state_before IS NULL)
        FROM changes c JOIN operations o USING (op_id), unnest(o.evidence) AS e (event_id)
        WHERE e.event_id IN (SELECT event_id FROM erased_events)
        GROUP BY c.insight_id"""
    for name, events, supporting in connection.execute(counted).fetchall():
        old = insights[name]
        support = max(0, old.support - supporting)
        found.insights[name] = replace(old, support=support, erased_evidence=old.erased_evidence + events)


def trail(forgetting: Forgetting, offset: int, found: Loss) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of `operations` and `changes` that tell of insights put away by the erasure; the reason is `erasure`."""
    if not found.blanked:
        return [], []
    op_id = stable_id("erasure", forgetting.id)
    operation = {
        "op_id": op_id,
        "log_offset": offset,
        "op": "ARCHIVE",
        "insight_id": "",
        "reason": "erasure",
        "actor": "forget",
        "at": forgetting.at,
        "weight": 1.0,
        "evidence": [],
    }
    changes = [
        {
            "op_id": op_id,
            "insight_id": old.id,
            "confidence_before": old.confidence,
            "confidence_after": old.confidence,
            "state_before": old.state,
            "state_after": "archived",
        }
        for old in found.blanked
    ]
    return [operation], changes


def is_due(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether something was erased since the file was written anew."""
    exists = "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'meta' AND database_name = current_database()"
    if connection.execute(exists).fetchall() == [(0,)]:
        return False
    return connection.execute("SELECT count(*) FROM meta WHERE name = ?", [NOTE]).fetchall() == [(1,)]


def write_anew(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Replace the file of this connection by a copy without free blocks; the connection is of no use afterwards."""
    connection.execute("CHECKPOINT")
    write_snapshot(connection, path, path.parent / "scratch", f"DELETE FROM copy.meta WHERE name = '{NOTE}'")
    connection.close()


def _claim(text: str | None) -> Claim | None:
    return None if text is None else json.decode(text, type=Claim)
