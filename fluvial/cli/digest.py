"""fluvial digest: one hash of the whole memory."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fluvial.cli.output import Context, emit, fail, table
from fluvial.schemas.insight import Insight

if TYPE_CHECKING:
    from fluvial.settings import Settings

PLACE_IN_LOG = ("log_partition", "log_offset")
"""Of an episode; another broker may count otherwise."""
QUERY = f"""
SELECT 'insight', to_json(i)::VARCHAR FROM (SELECT {", ".join(Insight.__struct_fields__)} FROM insights) i
UNION ALL SELECT 'change', to_json(c)::VARCHAR FROM changes c
UNION ALL SELECT 'evidence', to_json(e)::VARCHAR FROM (SELECT insight_id, event_id, op_id FROM evidence) e
"""
BITS = 256


def register(app: typer.Typer) -> None:
    @app.command()
    def digest(ctx: typer.Context) -> None:
        """One hash of what is remembered: equal for two memories that hold the same, however they came to it.

        Over episodes: all fields but vector and place in the log. Over insights: all fields but the embedding, every
        change an operation made, and the evidence. `fluvial drain` first makes sure that nothing is on its way.
        """
        context: Context = ctx.obj
        found = digest_of(context.settings)
        if found is None:
            fail(
                f"There is no memory in {context.settings.data}: start `fluvial up`, or choose the folder with --data."
            )
        if context.json:
            emit(
                {
                    **{name: {"count": n, "digest": text} for name, (n, text) in found.parts.items()},
                    "digest": found.whole,
                }
            )
        else:
            rows = [(name, f"{n:,}", text) for name, (n, text) in found.parts.items()]
            table(("memory", "records", "digest"), [*rows, ("both", "", found.whole)])


class Digest(NamedTuple):
    """Number of records and hash of each store, and one hash of both."""

    parts: dict[str, tuple[int, str]]
    whole: str


def digest_of(settings: "Settings") -> Digest | None:
    """None where there is no memory. Insights that cannot be read end the command with a sentence."""
    parts = {"episodes": _episodes(settings), "insights": _insights(settings)}
    if not any(parts.values()):
        return None
    sums = {name: part or fingerprint(()) for name, part in parts.items()}
    whole = hashlib.blake2b("".join(sums[name][1] for name in sorted(sums)).encode(), digest_size=16).hexdigest()
    return Digest(sums, whole)


def fingerprint(rows: Iterable[Any]) -> tuple[int, str]:
    """How many rows, and a hash that does not depend on their order: the sum of the rows' hashes."""
    from msgspec import json

    count, total = 0, 0
    for row in rows:
        count += 1
        total += int.from_bytes(hashlib.blake2b(json.encode(row, order="sorted"), digest_size=BITS // 8).digest())
    return count, hashlib.blake2b((total % 2**BITS).to_bytes(BITS // 8), digest_size=16).hexdigest()


def _episodes(settings: "Settings") -> tuple[int, str] | None:
    """None where there are none yet."""
    from msgspec import to_builtins

    from fluvial.sinks.episodes import EpisodeStore, NoEpisodes

    try:
        store = EpisodeStore.open(settings.episodes)
    except NoEpisodes:
        return None
    fields = (to_builtins(episode) for episode in store.all())
    return fingerprint({name: row[name] for name in row if name not in PLACE_IN_LOG} for row in fields)


def _insights(settings: "Settings") -> tuple[int, str] | None:
    """None where there are none yet."""
    from fluvial.sinks.insights_query import NoInsights, Unreadable, ask

    try:
        return fingerprint(ask(QUERY, settings.live_insights.parent, settings.insights).rows)
    except NoInsights:
        return None
    except Unreadable as error:
        fail(str(error))
