"""fluvial insights: what has been learnt."""

from typing import Annotated, Any, Literal

import typer

from fluvial.cli.output import Context, emit, table
from fluvial.schemas.insight import Insight

State = Literal["candidate", "active", "archived", "superseded", "rejected", "expired", "all"]
LIVE = ("candidate", "active")
QUERY = f"SELECT {', '.join(Insight.__struct_fields__)} FROM insights ORDER BY confidence DESC, id"


def register(app: typer.Typer) -> None:
    @app.command()
    def insights(
        ctx: typer.Context,
        state: Annotated[State | None, typer.Option(help="Only this state (default: candidate and active).")] = None,
        tool: Annotated[str | None, typer.Option(help="Only what is about calls of this tool.")] = None,
        min_confidence: Annotated[float, typer.Option(min=0.0, max=1.0, help="Only what is at least so sure.")] = 0.0,
    ) -> None:
        """What has been learnt, the surest first: confidence, state, votes for and against, sentence.

        With --json: every field of the insight with its claim; times in microseconds since 1970 UTC.
        """
        from fluvial.sinks.insights_query import ask

        context: Context = ctx.obj
        settings = context.settings
        answer = ask(QUERY, settings.live_insights.parent, settings.insights)
        states = LIVE if state is None else (state,)
        found = [
            row
            for row in (dict(zip(answer.columns, values, strict=True)) for values in answer.rows)
            if (state == "all" or row["state"] in states)
            and tool in (None, row["tool"])
            and row["confidence"] >= min_confidence
        ]
        if context.json:
            for row in found:
                emit(_with_claim(row))
        elif found:
            table(("confidence", "state", "votes", "sentence"), [_line(row) for row in found])
        else:
            typer.echo("No insights." if state or tool or min_confidence else "No insights yet.")


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    return (f"{row['confidence']:.2f}", row["state"], f"+{row['helpful']} -{row['harmful']}", row["content"])


def _with_claim(row: dict[str, Any]) -> dict[str, Any]:
    from msgspec import json

    return {**row, "claim": None if row["claim"] is None else json.decode(row["claim"])}
