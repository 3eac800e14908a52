"""fluvial search: episodes by meaning and by words."""

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fluvial.cli.output import WRONG_USE, Context, emit, fail, moment, table
from fluvial.cli.since import since_micros

if TYPE_CHECKING:
    from fluvial.schemas.episode import Episode

Status = Literal["ok", "error", "unknown"]
SHOWN = 300
"""Characters of a text in the table; --json has it whole."""


def register(app: typer.Typer) -> None:
    @app.command()
    def search(
        ctx: typer.Context,
        text: Annotated[str, typer.Argument(help="A situation, in your words.")],
        tool: Annotated[str | None, typer.Option(help="Only calls of this tool.")] = None,
        chain: Annotated[str | None, typer.Option(help="Only calls on this chain.")] = None,
        status: Annotated[Status | None, typer.Option(help="Only calls that ended so.")] = None,
        since: Annotated[str | None, typer.Option(help="Only calls from then on: a time, or 2h, 7d.")] = None,
        limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many at most.")] = 10,
    ) -> None:
        """Episodes like this text: nearest in meaning and sharing its words (the two rankings fused), best first.

        With --json: every field of the episode and its score; times in microseconds since 1970 UTC.
        """
        context: Context = ctx.obj
        if not text.strip():
            fail("There is nothing to search for: give some words.", WRONG_USE)
        earliest = None if since is None else since_micros(since, time.time_ns() // 1_000)

        from msgspec import to_builtins

        from fluvial.processors.embed import Embedder
        from fluvial.sinks.episodes import EpisodeStore, NoEpisodes

        try:
            store = EpisodeStore.open(context.settings.episodes)
        except NoEpisodes as none:
            fail(str(none))
        given = {"tool": tool, "chain": chain, "status": status}
        found = store.search(
            Embedder().embed([text])[0],
            text,
            equal={name: value for name, value in given.items() if value is not None},
            since=earliest,
            limit=limit,
        )
        if context.json:
            for one in found:
                emit({"score": one.score, **to_builtins(one.episode)})
        elif found:
            table(
                ("score", "when", "status", "episode", "event id"),
                [(f"{f.score:.4f}", moment(f.episode.started_at), *_words(f.episode), f.episode.id) for f in found],
            )
        else:
            typer.echo("No episode is like that." if not any(given.values()) and earliest is None else "None matches.")


def _words(episode: "Episode") -> tuple[str, str]:
    text = episode.text if episode.reflection_source == "template" else f"{episode.tool}: {episode.text}"
    return episode.status, text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
