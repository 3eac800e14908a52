"""fluvial sql: SQL over insights and operations."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fluvial.cli.output import Context, emit, table


def register(app: typer.Typer) -> None:
    @app.command()
    def sql(
        ctx: typer.Context,
        query: Annotated[
            str, typer.Argument(help="One SELECT (WITH, FROM, DESCRIBE and SHOW are some).", metavar="QUERY")
        ],
    ) -> None:
        """Answer SQL over the insights: the live ones while `fluvial up` runs, else the snapshot insights.duckdb.

        Tables: insights, operations, changes, meta. Views with readable times: lessons (what is held to be true now),
        history (what changed each insight, and why), evidence (the events behind it). DuckDB's SQL; nothing is written.
        """
        from fluvial.sinks.insights_query import ask

        context: Context = ctx.obj
        settings = context.settings
        answer = ask(query, settings.live_insights.parent, settings.insights)
        if context.json:
            names = distinct(answer.columns)
            for row in answer.rows:
                emit({name: plain(value) for name, value in zip(names, row, strict=True)})
        else:
            table(answer.columns, answer.rows)


def distinct(names: Sequence[str]) -> list[str]:
    """The names, the second `a` as `a_1`: keys of one object.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a_1']
    """
    taken: list[str] = []
    for name in names:
        key, number = name, 0
        while key in taken:
            number += 1
            key = f"{name}_{number}"
        taken.append(key)
    return taken


def plain(value: Any) -> Any:
    """The value, as text where JSON has no such thing (a map by lists)."""
    from msgspec import json

    try:
        json.encode(value)
    except (OverflowError, TypeError, ValueError):
        return str(value)
    return value
