"""fluvial forget: remove a run, an agent or a subject from memory, and prove it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli.output import WRONG_USE, Context, emit, fail, say, table

if TYPE_CHECKING:
    from fluvial.schemas.erasure import Erasure
    from fluvial.schemas.topics import HopPlan
    from fluvial.settings import Settings
    from fluvial.streams.proof import Place

ANSWER_SECONDS = 30.0
COLUMNS = ("place", "scanned", "found before", "found after")
LONGEST = 256


def register(app: typer.Typer) -> None:
    @app.command()
    def forget(
        ctx: typer.Context,
        run: Annotated[str | None, typer.Option(help="Every call of this run.", metavar="RUN_ID")] = None,
        agent: Annotated[str | None, typer.Option(help="Every call of this agent.", metavar="AGENT_ID")] = None,
        subject: Annotated[
            str | None, typer.Option(help="Every call that holds this text as a whole word.", metavar="TEXT")
        ] = None,
        yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
        timeout: Annotated[float, typer.Option(help="Seconds to wait for the hops at most.", min=1.0)] = 300.0,
    ) -> None:
        """Forget a run, an agent or a subject, and prove it: what was looked through, what was found before and after.

        An order to forget goes into the log; every hop forgets where it stands there, and would again in a replay. What
        was published stays in the log itself (`tool-calls`). The workers have to run. With --json one object a place;
        it does not ask. Exit code 1 where something but the log still has it.
        """
        from fluvial.streams.log_reader import LogReader
        from fluvial.streams.proof import event_ids, look

        context: Context = ctx.obj
        settings = context.settings
        erasure = _erasure(run, agent, subject)
        ids = event_ids(settings, erasure)
        with LogReader(settings.broker_address(), timeout=ANSWER_SECONDS) as reader:
            before = list(look(settings, reader, erasure, ids))
        if not any(place.found for place in before):
            fail(f"Nothing tells of {erasure.what} {erasure.value} (--data {settings.data}): is that its name?")
        if not (yes or context.json):
            _ask(erasure, len(ids), settings)
        _until_nothing_is_left(settings, erasure, len(ids), timeout)
        with LogReader(settings.broker_address(), timeout=ANSWER_SECONDS) as reader:
            after = list(look(settings, reader, erasure, ids))
        _tell(context, before, after)
        if left := [place.name for place in after if place.found and not place.is_log]:
            fail(f"Not forgotten everywhere: {', '.join(left)}. Run it again; docs/forget.md says what may hold it.")
        if not context.json:
            typer.echo(f"Forgotten: {len(ids):,} calls. The log keeps what was published, and the order to forget it.")


def _erasure(run: str | None, agent: str | None, subject: str | None) -> "Erasure":
    from fluvial.schemas.erasure import Erasure

    given = [(what, value) for what, value in (("run", run), ("agent", agent), ("subject", subject)) if value]
    if len(given) != 1 or not given[0][1].strip():
        fail("Name one of --run, --agent and --subject.", WRONG_USE)
    what, value = given[0]
    if len(value) > LONGEST:
        fail(f"--{what} is longer than {LONGEST} characters: give a shorter text that stands in it.", WRONG_USE)
    return Erasure(what=what, value=value)  # type: ignore[arg-type]


def _ask(erasure: "Erasure", calls: int, settings: "Settings") -> None:
    question = f"Forget {calls:,} calls of {settings.data} for ever ({erasure.what} {erasure.value})?"
    if not sys.stdin.isatty():
        fail(f"{question} Say --yes where nobody can be asked.", WRONG_USE)
    if not typer.confirm(question, err=True):
        fail("Nothing was forgotten.")


def _until_nothing_is_left(settings: "Settings", erasure: "Erasure", calls: int, timeout: float) -> None:
    """One order takes as much as a tick can carry; the drain after it lets every hop carry it out."""
    from rich.console import Console

    from fluvial.streams.drain import drain
    from fluvial.streams.proof import event_ids

    broker, prefix = settings.broker_address(), settings.topic_prefix
    with Console(stderr=True, quiet=not sys.stderr.isatty()).status("asking every hop to forget") as line:

        def on_look(waiting: Sequence["HopPlan"], handled: int) -> None:
            line.update(f"waiting for {', '.join(plan.name for plan in waiting)}")

        left, before = calls, calls + 1
        while left < before:
            drain(broker, timeout, prefix, on_look, erasure)
            drain(broker, timeout, prefix, on_look)
            left, before = len(event_ids(settings, erasure)), left
            if not left:
                return
    say(f"{left:,} calls are still there. Do the workers of land use this data folder (--data)?")


def _tell(context: Context, before: Sequence["Place"], after: Sequence["Place"]) -> None:
    for was, now in zip(before, after, strict=True):
        if context.json:
            found = {"found_before": was.found, "found_after": now.found}
            emit({"place": now.name, "scanned": now.scanned, "unit": now.unit, **found, "is_log": now.is_log})
    if not context.json:
        rows = [
            (f"{now.name} (the log)" if now.is_log else now.name, f"{now.scanned:,} {now.unit}", was.found, now.found)
            for was, now in zip(before, after, strict=True)
        ]
        table(COLUMNS, rows)
