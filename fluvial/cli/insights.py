"""fluvial insights: what has been learnt."""

from typing import Annotated, Any, Literal

import typer

from fluvial.cli.output import WRONG_USE, Context, emit, fail, table
from fluvial.schemas.insight import Insight

State = Literal["candidate", "active", "archived", "superseded", "rejected", "expired", "all"]
FIELDS = ", ".join(Insight.__struct_fields__)
NEAREST = 10
"""So many are shown with --like, unless --limit says otherwise."""


def register(app: typer.Typer) -> None:
    @app.command()
    def insights(
        ctx: typer.Context,
        state: Annotated[State | None, typer.Option(help="Only this state (default: candidate and active).")] = None,
        tool: Annotated[str | None, typer.Option(help="Only what is about calls of this tool.")] = None,
        min_confidence: Annotated[float, typer.Option(min=0.0, max=1.0, help="Only what is at least so sure.")] = 0.0,
        like: Annotated[
            str | None, typer.Option(help="Nearest in meaning to this text, the nearest first.", metavar="TEXT")
        ] = None,
        limit: Annotated[
            int | None, typer.Option(min=1, help=f"How many at most (default: all, with --like {NEAREST}).")
        ] = None,
    ) -> None:
        """What has been learnt, the surest first: confidence, state, votes for and against, sentence.

        With --like also the distance in meaning: 0 the same, 1 nothing in common. With --json: every field of the
        insight with its claim (and `distance`); times in microseconds since 1970 UTC.
        """
        context: Context = ctx.obj
        if like is not None and not like.strip():
            fail("There is nothing to look for: give --like some words.", WRONG_USE)

        from fluvial.sinks.insights_query import ask

        settings = context.settings
        query = _query(state, tool, min_confidence, like, limit)
        answer = ask(query, settings.live_insights.parent, settings.insights)
        found = [dict(zip(answer.columns, values, strict=True)) for values in answer.rows]
        if context.json:
            for row in found:
                emit(_with_claim(row))
        elif found:
            columns = ("confidence", "state", "votes", "sentence")
            table(columns if like is None else ("distance", *columns), [_line(row) for row in found])
        else:
            typer.echo("No insights." if state or tool or min_confidence else "No insights yet.")


def _query(state: State | None, tool: str | None, min_confidence: float, like: str | None, limit: int | None) -> str:
    """The SELECT for these options; the server takes no parameters, so it holds their values."""
    from fluvial.sinks.insights_query import literal

    conditions = [f"confidence >= {min_confidence!r}::DOUBLE"]
    if state is None:
        conditions.append("state IN ('candidate', 'active')")
    elif state != "all":
        conditions.append(f"state = {literal(state)}")
    if tool is not None:
        conditions.append(f"tool = {literal(tool)}")
    columns, order = FIELDS, "confidence DESC, id"
    if like is not None:
        from fluvial.processors.embed import DIMENSIONS, Embedder

        asked = literal(str(Embedder().embed([like])[0].tolist()))
        columns += f", array_cosine_distance(embedding, {asked}::FLOAT[{DIMENSIONS}]) AS distance"
        order, limit = "distance, id", limit or NEAREST
    query = f"SELECT {columns} FROM insights WHERE {' AND '.join(conditions)} ORDER BY {order}"
    return query if limit is None else f"{query} LIMIT {limit}"


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    line = (f"{row['confidence']:.2f}", row["state"], f"+{row['helpful']} -{row['harmful']}", row["content"])
    return (f"{row['distance']:.3f}", *line) if "distance" in row else line


def _with_claim(row: dict[str, Any]) -> dict[str, Any]:
    from msgspec import json

    return {**row, "claim": None if row["claim"] is None else json.decode(row["claim"])}
