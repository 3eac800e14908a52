"""fluvial drain: wait until everything published so far has come to its end."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli.output import Context, emit

if TYPE_CHECKING:
    from fluvial.schemas.topics import HopPlan


def register(app: typer.Typer) -> None:
    @app.command()
    def drain(
        ctx: typer.Context,
        timeout: Annotated[float, typer.Option(help="Seconds to wait at most.", min=0.0)] = 300.0,
    ) -> None:
        """Wait until everything published so far has come to its end in every hop.

        Asks every hop to finish what it holds open (gather closes its windows), and returns when each has. Exit code 1
        and the names of the hops that are behind when that takes longer than --timeout.
        """
        from rich.console import Console

        from fluvial.streams.drain import drain as drain_river

        context: Context = ctx.obj
        settings = context.settings
        with Console(stderr=True, quiet=not sys.stderr.isatty()).status("asking every hop to finish") as line:

            def on_look(waiting: Sequence["HopPlan"], handled: int) -> None:
                line.update(f"waiting for {', '.join(plan.name for plan in waiting)} ({handled:,} handled)")

            seconds = drain_river(settings.broker_address(), timeout, settings.topic_prefix, on_look)
        if context.json:
            emit({"drained": True, "seconds": round(seconds, 3)})
        else:
            typer.echo(f"Drained in {seconds:.1f} s: every hop has handled everything published so far.")
