"""The state of distil: the evidence kept of each tool of a source, and the claims under test."""

import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from fluvial.processors.confidence import START
from fluvial.schemas.claim import Claim
from fluvial.schemas.cluster import Cluster, Row
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.ids import stable_id

MOST_ROWS = 2_000
"""Calls kept as evidence of a tool of a source, the latest ones (up to a cluster more)."""
MOST_TOOLS = 200
"""Tools of a source that are known, the latest used ones: with another's evidence its claims are forgotten."""
HALVE_AT = 100.0
"""Runs after which a tally is halved, so that it follows the present."""


class Tally(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failure rate by run: how many runs, and the sum of their mean failures."""

    runs: float = 0.0
    failures: float = 0.0

    def add(self, means: Sequence[float]) -> "Tally":
        runs, failures = self.runs + len(means), self.failures + math.fsum(means)
        return Tally(runs=runs / 2, failures=failures / 2) if runs > HALVE_AT else Tally(runs=runs, failures=failures)


class Source(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a source: keys of its tools, the latest used last; ids of its claims, the latest found last."""

    tools: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The evidence kept of one tool: chunks `first` to `next` - 1, `rows` in all.

    `calls`, `failures`: all that there ever were.
    `unmined`, `untold`: calls since the tool was last mined, and since its sentences were last brought up to date.
    `cause` and `at` are id and latest time of its last cluster.
    """

    source: str
    tool: str
    first: int = 0
    next: int = 0
    rows: int = 0
    unmined: int = 0
    untold: int = 0
    calls: int = 0
    failures: int = 0
    tally: Tally = Tally()
    cause: str = ""
    at: int = 0


class Chunk(Struct, frozen=True, kw_only=True):
    """The rows of one cluster: JSON, deflated."""

    n: int
    packed: bytes


class Known(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A claim under test. `matched`: run -> (calls, failures) of matching calls since the last vote."""

    id: str
    claim: Claim
    confidence: float = START
    outside: Tally = Tally()
    matched: dict[str, tuple[int, int]] = {}
    evidence: tuple[str, ...] = ()
    told: tuple[int, int, int] = (0, 0, 0)
    """Calls, failures and runs in the sentence as it was last written."""


@dataclass(frozen=True)
class Lessons:
    """The state: sources by name, tools by key, evidence by `tool key:number`, claims by insight id."""

    sources: MutableMapping[str, Source]
    tools: MutableMapping[str, Tool]
    evidence: MutableMapping[str, Chunk]
    claims: MutableMapping[str, Known]


def means(rows: Sequence[Row]) -> list[float]:
    """Mean failure of each run."""
    runs: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        runs[row.run_id].append(row.failed)
    return [sum(failed) / len(failed) for failed in runs.values()]


def remember(lessons: Lessons, cluster: Cluster) -> str:
    """Add the cluster to the evidence of its tool, and forget the oldest beyond MOST_ROWS; the tool's key."""
    key = stable_id(cluster.source, cluster.tool)
    source = lessons.sources.get(cluster.source, Source())
    if source.tools[-1:] != (key,):
        tools = (*(other for other in source.tools if other != key), key)
        lessons.sources[cluster.source] = msgspec.structs.replace(source, tools=tools[-MOST_TOOLS:])
        for other in tools[:-MOST_TOOLS]:
            _forget_tool(lessons, other)
    tool = lessons.tools.get(key, Tool(source=cluster.source, tool=cluster.tool))
    n = len(cluster.rows)
    lessons.evidence[f"{key}:{tool.next}"] = packed(cluster.rows)
    rows, first = tool.rows + n, tool.first
    while rows - (oldest := lessons.evidence[f"{key}:{first}"].n) >= MOST_ROWS:
        del lessons.evidence[f"{key}:{first}"]
        rows, first = rows - oldest, first + 1
    lessons.tools[key] = msgspec.structs.replace(
        tool,
        first=first,
        next=tool.next + 1,
        rows=rows,
        unmined=tool.unmined + n,
        untold=tool.untold + n,
        calls=tool.calls + n,
        failures=tool.failures + sum(row.failed for row in cluster.rows),
        tally=tool.tally.add(means(cluster.rows)),
        cause=cluster.id,
        at=max(row.at for row in cluster.rows),
    )
    return key


def _forget_tool(lessons: Lessons, key: str) -> None:
    tool = lessons.tools.pop(key)
    for number in range(tool.first, tool.next):
        del lessons.evidence[f"{key}:{number}"]
    forget_claims(lessons, tool.source, claims_of(lessons, tool))


def claims_of(lessons: Lessons, tool: Tool) -> dict[str, Known]:
    """The claims of one tool by id, in the order of their discovery."""
    known = {name: lessons.claims[name] for name in lessons.sources[tool.source].claims}
    return {name: one for name, one in known.items() if one.claim.tool == tool.tool}


def forget_claims(lessons: Lessons, source: str, names: Collection[str]) -> None:
    """Test these claims of a source no longer. What is said of them stays; found again, a claim begins anew."""
    left = tuple(name for name in lessons.sources[source].claims if name not in names)
    lessons.sources[source] = msgspec.structs.replace(lessons.sources[source], claims=left)
    for name in names:
        del lessons.claims[name]


def recall(lessons: Lessons, key: str) -> Iterator[Row]:
    """The calls kept as evidence of a tool, in the order in which they came."""
    tool = lessons.tools[key]
    for number in range(tool.first, tool.next):
        yield from unpacked(lessons.evidence[f"{key}:{number}"])


def packed(rows: tuple[Row, ...]) -> Chunk:
    """Rows as they are kept."""
    return Chunk(n=len(rows), packed=zlib.compress(encode(rows), 6))


def unpacked(chunk: Chunk) -> tuple[Row, ...]:
    """The rows in a chunk."""
    return decode(zlib.decompress(chunk.packed), tuple[Row, ...])
