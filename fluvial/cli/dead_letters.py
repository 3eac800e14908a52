"""fluvial dead-letters: what could not be used, and why; and once more."""

from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli.output import Context, emit, fail, printable, table

if TYPE_CHECKING:
    from fluvial.schemas.dead_letter import DeadLetter

ANSWER_SECONDS = 30.0
EXCERPT = 60
IDS = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters or of their events; none: all.")]
HOP = Annotated[str | None, typer.Option(help="Only those of one hop, or of `publish`.")]


def register(app: typer.Typer) -> None:
    commands = typer.Typer(rich_markup_mode=None)
    app.add_typer(commands, name="dead-letters")

    @commands.callback(invoke_without_command=True)
    def dead_letters(ctx: typer.Context) -> None:
        """What could not be used, with the reason: show it (the default), or replay it to a reader that was mended."""
        if ctx.invoked_subcommand is None:
            _show(ctx.obj, [], None)

    @commands.command()
    def show(ctx: typer.Context, ids: IDS = None, hop: HOP = None) -> None:
        """List dead letters: id, hop, reason, where the record stands, how it begins. With --json: whole."""
        _show(ctx.obj, ids or [], hop)

    @commands.command()
    def replay(ctx: typer.Context, ids: IDS = None, hop: HOP = None) -> None:
        """Publish the original records of dead letters again, so that a mended reader can take them.

        Nothing lands twice: an event is known again by its id. What cannot be replayed is said, with the reason.
        """
        _replay(ctx.obj, ids or [], hop)


def _chosen(context: Context, ids: list[str], hop: str | None) -> list["DeadLetter"]:
    from fluvial.streams.dead_letters import dead_letters
    from fluvial.streams.log_reader import LogReader

    with LogReader(context.settings.broker_address(), timeout=ANSWER_SECONDS) as reader:
        letters = [
            letter
            for letter in dead_letters(reader, context.settings.topic_prefix)
            if (not ids or letter.id in ids or letter.event_id in ids) and hop in (None, letter.hop)
        ]
    if ids and (unknown := set(ids) - {name for letter in letters for name in (letter.id, letter.event_id)}):
        fail(f"No dead letter is called {', '.join(sorted(unknown))}. `fluvial dead-letters` lists them.")
    return letters


def _show(context: Context, ids: list[str], hop: str | None) -> None:
    letters = _chosen(context, ids, hop)
    if context.json:
        from msgspec import to_builtins

        for letter in letters:
            emit(to_builtins(letter))
    elif letters:
        rows = [(letter.id, letter.hop, letter.reason, where(letter), excerpt(letter.value)) for letter in letters]
        table(("id", "hop", "reason", "where", "excerpt"), rows)
    else:
        typer.echo("No dead letters.")


def _replay(context: Context, ids: list[str], hop: str | None) -> None:
    from fluvial.streams.dead_letters import replay
    from fluvial.streams.log_reader import LogReader

    letters = _chosen(context, ids, hop)
    with LogReader(context.settings.broker_address(), timeout=ANSWER_SECONDS) as reader:
        sent = replay(reader, letters, context.settings.topic_prefix)
    if context.json:
        for letter, outcome, why in sent:
            emit({"id": letter.id, "hop": letter.hop, "event_id": letter.event_id, "outcome": outcome, "why": why})
        return
    left = [(letter.id, letter.hop, why) for letter, outcome, why in sent if outcome == "impossible"]
    if left:
        table(("not replayable", "hop", "why"), left)
    count = sum(outcome == "replayed" for _, outcome, _ in sent)
    same = sum(outcome == "same" for _, outcome, _ in sent)
    typer.echo(f"{count} replayed, {same} the same again, {len(left)} not replayable. `fluvial drain` waits for them.")


def where(letter: "DeadLetter") -> str:
    """`tool-calls[2]@1234`; for what was refused at publishing, the file (or source) and the line: `calls.jsonl:17`."""
    if letter.hop == "publish":
        return f"{letter.topic}:{letter.offset}"
    return f"{letter.topic}[{letter.partition}]@{letter.offset}"


def excerpt(text: str) -> str:
    """How it begins, on one line."""
    return printable(text[:EXCERPT]) + "…" * (len(text) > EXCERPT)
