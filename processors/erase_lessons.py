"""Erasure in the state of distil: forgotten calls leave the evidence, and claims that speak of them are dropped."""

from collections import defaultdict
from collections.abc import Set

from msgspec.structs import replace

from fluvial.processors.erasure import tells
from fluvial.processors.lessons import Known, Lessons, Tool, forget_claims, packed, unpacked
from fluvial.schemas.cluster import Row
from fluvial.schemas.erasure import Erasure


def erase_evidence(lessons: Lessons, erasure: Erasure, event_ids: Set[str], cause: str) -> None:
    """Take these events out. Tools that lose some are due to be told anew (`finish`), with `cause` as the cause.

    Running rates (tallies) hold no call and stay.
    """
    runs: dict[str, set[str]] = defaultdict(set)
    for key in sorted(lessons.tools):
        tool = lessons.tools[key]
        if gone := _taken_out(lessons, key, tool, event_ids):
            lessons.tools[key] = _without(tool, gone, cause)
            runs[tool.source].update(row.run_id for row in gone)
    for source in sorted(lessons.sources):
        known = {name: lessons.claims[name] for name in lessons.sources[source].claims}
        telling = [name for name, one in known.items() if tells(None, one.claim, erasure)]
        forget_claims(lessons, source, telling)
        forgotten = runs[source] | ({erasure.value} if erasure.what == "run" else set())
        for name in known.keys() - set(telling):
            if (left := _doubted(known[name], forgotten, event_ids)) != known[name]:
                lessons.claims[name] = left


def _taken_out(lessons: Lessons, key: str, tool: Tool, event_ids: Set[str]) -> list[Row]:
    gone: list[Row] = []
    for number in range(tool.first, tool.next):
        rows = unpacked(lessons.evidence[f"{key}:{number}"])
        left = tuple(row for row in rows if row.event_id not in event_ids)
        if len(left) < len(rows):
            lessons.evidence[f"{key}:{number}"] = packed(left)
            gone += [row for row in rows if row.event_id in event_ids]
    return gone


def _without(tool: Tool, gone: list[Row], cause: str) -> Tool:
    rows = tool.rows - len(gone)
    return replace(
        tool,
        rows=rows,
        unmined=min(tool.unmined, rows),
        untold=min(max(tool.untold, 1), rows),
        calls=tool.calls - len(gone),
        failures=tool.failures - sum(row.failed for row in gone),
        cause=cause,
    )


def _doubted(known: Known, runs: Set[str], event_ids: Set[str]) -> Known:
    return replace(
        known,
        matched={run: counts for run, counts in known.matched.items() if run not in runs},
        evidence=tuple(event for event in known.evidence if event not in event_ids),
    )
