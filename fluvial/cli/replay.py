"""fluvial replay: the memory once more, from the log."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli.output import WRONG_USE, Context, emit, fail, moment, say

if TYPE_CHECKING:
    from fluvial.cli.digest import Digest
    from fluvial.settings import Settings
    from fluvial.streams.log_reader import LogReader
    from fluvial.streams.replay import Goal

KEY = "redaction.key"
BROKER_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    @app.command()
    def replay(
        ctx: typer.Context,
        from_log: Annotated[bool, typer.Option("--from-log", help="Rebuild from `tool-calls`.")] = False,
        in_place: Annotated[
            bool, typer.Option("--in-place", help="Rebuild the river's own topics and stores; it must not run.")
        ] = False,
        clean: Annotated[
            bool, typer.Option("--clean", help="Only delete what interrupted replays left on the broker.")
        ] = False,
        river: Annotated[
            Path | None,
            typer.Option(help="Data folder of the river (FLUVIAL_DATA; default ./fluvial-data).", metavar="FOLDER"),
        ] = None,
    ) -> None:
        """Rebuild episodes and insights from the log: into the new folder --data NEW, or with --in-place.

        Into NEW: the hops run once more over the river's `tool-calls` up to the last tick, with topics of their own,
        which are deleted at the end. The river goes on meanwhile, untouched. The digest is printed, and compared with
        that of the river's folder where that was drained and nothing was published since: exit code 1 if they differ.

        With --in-place, for a river whose topics or stores were lost in part: its derived topics, its state and its
        stores are made anew, and `fluvial up` goes on from there. What was in --data is kept beside, in
        before-DATE. Only `tool-calls` and what operators wrote into `insight-ops` are taken from the broker.

        (Records that could not be used are another matter: `fluvial dead-letters replay`.)
        """
        from fluvial.cli.up import interrupts

        context: Context = ctx.obj
        if not from_log and not clean:
            fail(
                "Say --from-log to rebuild the memory, or --clean. (`fluvial dead-letters replay` is another thing.)", 2
            )
        with interrupts():
            if clean:
                _clean(_river(context, river))
            elif in_place:
                _in_place(_river(context, river or context.data), context.json)
            elif context.data is None:
                fail("Say where the rebuilt memory goes: --data NEW, or --in-place.", WRONG_USE)
            else:
                _into(context.data.absolute(), _river(context, river), context.json)


def _river(context: Context, folder: Path | None) -> "Settings":
    """The settings of the river that is replayed."""
    of_river = Context(data=folder, broker=context.broker).settings
    return of_river.model_copy(update={"data": of_river.data.absolute()})


@contextmanager
def _broker(settings: "Settings", held: bool = False) -> Iterator[str]:
    """The river's broker; the local one is started for this time if it does not run (`held`: the folder is ours)."""
    from fluvial.streams.admin import is_ready, wait_for_broker
    from fluvial.streams.broker import LocalBroker
    from fluvial.streams.supervise import sole

    address = settings.broker_address()
    if settings.broker or not settings.kafka.is_dir():
        wait_for_broker(address, BROKER_SECONDS)
        yield address
    elif is_ready(address):
        yield address
    else:
        folder = nullcontext() if held else sole(settings.data)
        with folder, LocalBroker(settings.kafka, settings.kafka_port, settings.java) as broker:
            yield broker.address


def _clean(settings: "Settings") -> None:
    from fluvial.streams.replay import clean, leftovers

    with _broker(settings) as broker:
        for prefix in sorted(leftovers(broker, settings.topic_prefix, older_than=0.0)):
            clean(broker, prefix)
            say(f"Deleted the topics and groups of {prefix.rstrip('-')}.")


def _into(new: Path, river: "Settings", json: bool) -> None:
    """Rebuild into a new folder, compare, and leave nothing on the broker."""
    from fluvial.streams.hop import Replayed
    from fluvial.streams.log_reader import LogReader
    from fluvial.streams.replay import Look, clean, goal, leftovers, new_prefix, prepare, run
    from fluvial.streams.supervise import sole

    if new.exists() and (not new.is_dir() or any(new.iterdir())):
        fail(f"{new} is not empty: a replay needs a new folder. (One that was interrupted cannot go on: delete it.)")
    with ExitStack() as everything:
        broker = everything.enter_context(_broker(river))
        reader = everything.enter_context(LogReader(broker))
        end = goal(reader, river.topic_prefix)
        for left in sorted(leftovers(broker, river.topic_prefix)):
            clean(broker, left)
        everything.enter_context(sole(new))
        (new / "logs").mkdir()
        _copy_key(river.data, new)
        _say_what_is_lost(reader, river.topic_prefix)
        prefix = new_prefix(broker, river.topic_prefix)
        everything.callback(clean, broker, prefix)
        operations = prepare(broker, river.topic_prefix, prefix)
        with _progress(json, end, operations) as told:
            look = Look(reader, prefix, end, told)
            run(_environment(new, broker, prefix), Replayed(river.topic_prefix, end.slot), new / "logs", look)
        found = _digest(river.model_copy(update={"data": new}))
        _compare(reader, river, new, end, found, json)


def _in_place(river: "Settings", json: bool) -> None:
    """Rebuild a river that stands."""
    from fluvial.streams.hop import Replayed
    from fluvial.streams.log_reader import LogReader
    from fluvial.streams.rebuild import begin, end
    from fluvial.streams.replay import Look, goal, run
    from fluvial.streams.supervise import sole

    with ExitStack() as everything:
        everything.enter_context(sole(river.data))
        river.logs.mkdir(exist_ok=True)
        broker = everything.enter_context(_broker(river, held=True))
        reader = everything.enter_context(LogReader(broker))
        last = goal(reader, river.topic_prefix)
        _say_what_is_lost(reader, river.topic_prefix)
        journal = begin(broker, river.topic_prefix, river.data)
        environment = _environment(river.data, broker, river.topic_prefix)
        with _progress(json, last, len(journal.operations)) as told:
            look = Look(reader, river.topic_prefix, last, told)
            run(environment, Replayed(river.topic_prefix, last.slot), river.logs, look)
        end(broker, river.topic_prefix, river.data, journal)
        found = _digest(river)
        if json:
            emit({"data": str(river.data), "before": str(river.data / journal.folder), **_as_object(found)})
        else:
            typer.echo(f"{_in_words(found)}. `fluvial up` goes on from here; the stores of before are in")
            typer.echo(f"{river.data / journal.folder}: delete them when you have looked.")


def _say_what_is_lost(reader: "LogReader", prefix: str) -> None:
    """Of the operators' records, which no hop makes again."""
    from fluvial.schemas.topics import INSIGHT_OPS
    from fluvial.streams.log_reader import TopicMissing

    name = INSIGHT_OPS.named(prefix)
    try:
        begins = max(first for first, _ in reader.spans(reader.partitions(name)).values())
    except TopicMissing:
        say(f"There is no topic {name}: what operators wrote into it is lost.")
        return
    if begins:
        say(f"{name} begins at offset {begins:,}: what operators wrote before that is lost.")


def _environment(data: Path, broker: str, prefix: str) -> dict[str, str]:
    """Of the workers. What happened once is not told again: no webhook."""
    return {
        "FLUVIAL_DATA": str(data),
        "FLUVIAL_BROKER": broker,
        "FLUVIAL_TOPIC_PREFIX": prefix,
        "FLUVIAL_QUACK_PORT": "0",
        "FLUVIAL_WEBHOOK_URL": "",
    }


def _copy_key(river: Path, new: Path) -> None:
    """Equal secrets have equal marks in both memories."""
    if (river / KEY).is_file():
        shutil.copy2(river / KEY, new / KEY)


@contextmanager
def _progress(json: bool, goal: "Goal", operations: int) -> "Iterator[Callable[[float, Sequence[str]], None]]":
    """A bar on a terminal, else nothing until the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    if not json:
        at, calls = moment(goal.slot * 1_000), sum(goal.ends.values())
        wrote = f", and {operations:,} records of operators" if operations else ""
        typer.echo(f"Replaying {calls:,} records of tool-calls up to {at}{wrote}.")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=json or not sys.stderr.isatty()) as bar:
        task = bar.add_task("starting the hops", total=1.0)

        def told(part: float, waiting: Sequence[str]) -> None:
            doing = "landed" if part < 1 else f"waiting for {', '.join(waiting)}" if waiting else "done"
            bar.update(task, completed=part, description=doing)

        yield told


def _digest(settings: "Settings") -> "Digest":
    from fluvial.cli.digest import digest_of

    found = digest_of(settings)
    if found is None:
        fail(f"The replay has made no memory in {settings.data}: see {settings.logs}.")
    return found


def _compare(reader: "LogReader", river: "Settings", new: Path, goal: "Goal", found: "Digest", json: bool) -> None:
    """Say the digest, and whether the river's is the same; exit code 1 where it is not."""
    from fluvial.cli.digest import digest_of
    from fluvial.streams.replay import why_not_comparable

    before = digest_of(river)
    why = f"there is no memory in {river.data}" if before is None else ""
    why = why or why_not_comparable(reader, river.topic_prefix, goal)
    same = None if why or before is None else found.whole == before.whole
    if json:
        emit({"data": str(new), **_as_object(found), "river": before.whole if before else None, "same": same})
    else:
        typer.echo(f"{_in_words(found)} in {new}.")
        if same is None:
            typer.echo(f"Not compared with {river.data}: {why}.")
        elif same:
            typer.echo(f"{river.data} has the same digest.")
    if same is False and before is not None:
        fail(
            f"{river.data} has another digest, {before.whole}. (Same release, same settings, same redaction key? "
            "CHANGELOG.md says which releases change it.)"
        )


def _as_object(found: "Digest") -> dict[str, object]:
    return {**{name: n for name, (n, _) in found.parts.items()}, "digest": found.whole}


def _in_words(found: "Digest") -> str:
    counts = ", ".join(
        f"{n:,} {'records of insights' if name == 'insights' else name}" for name, (n, _) in found.parts.items()
    )
    return f"{counts}; digest {found.whole}"
