"""fluvial doctor: is everything here that the river needs."""

import typer

from fluvial.cli.output import Context, emit, fail


def register(app: typer.Typer) -> None:
    @app.command()
    def doctor(ctx: typer.Context) -> None:
        """Is everything here that the river needs? One line a check: ok, warn or FAIL, and what to do.

        Exit code 1 if something FAILs, which means that `fluvial up` would not start. Nothing is changed.
        """
        from fluvial.cli.checks import findings

        context: Context = ctx.obj
        failed = 0
        for finding in findings(context.settings):
            failed += finding.state == "FAIL"
            if context.json:
                emit(finding._asdict())
            else:
                typer.echo(f"{finding.state:<4}  {finding.check:<12}  {finding.detail}")
        if failed:
            fail(f"{failed} of these would keep `fluvial up` from starting.")
