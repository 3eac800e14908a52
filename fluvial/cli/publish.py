"""fluvial publish: tool calls from files or stdin into the river."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli import spooled as spooled_calls
from fluvial.cli.output import WRONG_USE, Context, emit, fail

if TYPE_CHECKING:
    from fluvial.lines import Line, LineFile
    from fluvial.publish import Publisher
    from fluvial.schemas.tool_call import ToolCall

Reader = Callable[[bytes], "ToolCall"]


def register(app: typer.Typer) -> None:
    @app.command()
    def publish(
        ctx: typer.Context,
        files: Annotated[
            list[str] | None, typer.Argument(help="JSONL files, plain or gzip; `-` is stdin.", metavar="FILE")
        ] = None,
        map: Annotated[
            Path | None,
            typer.Option("--map", help="TOML file that says where a line has each field.", metavar="MAPPING.toml"),
        ] = None,
        spooled: Annotated[
            bool, typer.Option("--spooled", help="Instead of files: what agents that ended have left in their spools.")
        ] = False,
        timeout: Annotated[
            float, typer.Option(help="How long to wait for a broker that does not answer.", min=0.1, metavar="SECONDS")
        ] = 20.0,
    ) -> None:
        """Publish the tool calls of JSONL files.

        Each line is one call: a ToolCall as JSON or, with --map, an object of any shape. A line that is no JSON, does
        not map or breaks a constraint is refused: it goes to the dead letters with the reason, and the exit code
        stays 0. To publish a file twice adds nothing: ids come from the calls themselves.
        """
        context: Context = ctx.obj
        if spooled == bool(files) or (spooled and map):
            fail("Name files to publish (`-` is stdin), or --spooled alone.", WRONG_USE)
        if spooled:
            with _connected(context, timeout, spool=True) as publisher, _progress(0) as advance:
                spooled_counts = spooled_calls.send(publisher, timeout, advance)
            spooled_calls.report(context, spooled_counts)
            return
        with ExitStack() as stack:
            inputs = [stack.enter_context(_opened(name)) for name in files or ()]
            read_call = _reader(map)
            publisher = stack.enter_context(_connected(context, timeout, spool=False))
            counts, problems = _publish(inputs, read_call, publisher, timeout)
        if context.json:
            emit(counts)
        else:
            hint = "; `fluvial dead-letters` says why" if counts["refused"] else ""
            typer.echo("{read:,} read, {published:,} published, {refused:,} refused".format(**counts) + hint)
        if problems:
            fail(" ".join(problems))


def _publish(
    inputs: list["LineFile"], read_call: Reader, publisher: "Publisher", timeout: float
) -> tuple[dict[str, int], list[str]]:
    """All readable lines of the files; read, published, refused, and what was wrong with the files."""
    from fluvial.lines import Damaged

    read = refused = 0
    problems: list[str] = []
    with _progress(sum(file.size for file in inputs)) as advance:
        for file in inputs:
            try:
                for line in file:
                    read += 1
                    taken, sent = _publish_line(file.name, line, read_call, publisher, timeout)
                    if not sent:
                        _give_up(publisher, read)
                    refused += not taken
                    if read % 200 == 0:
                        advance(file.position, read)
            except Damaged as damage:
                problems.append(f"{damage} What stood before is published.")
    counts = publisher.counts()
    while not publisher.flush(timeout):
        before, counts = counts, publisher.counts()
        if counts.failed or counts.letters_lost or counts.delivered == before.delivered:
            _give_up(publisher, read)
    return {"read": read, "published": publisher.counts().delivered, "refused": refused}, problems


def _publish_line(
    name: str, line: "Line", read_call: Reader, publisher: "Publisher", timeout: float
) -> tuple[bool, bool]:
    """Whether the line was taken as a call, and whether it (or its dead letter) found room within `timeout`."""
    from fluvial.prepare import Refused

    try:
        if not line.whole:
            raise Refused("too long: more than 16 MiB on one line")
        call, value = publisher.prepared(read_call(line.data))
    except Refused as refused:
        place = name, line.number
        return False, publisher.refuse(
            line.data, str(refused), place=place, event_id=_event_id(line.data), wait=timeout
        )
    return True, publisher.send(call, value, timeout)


def _event_id(data: bytes) -> str:
    """The line's own `event_id`, by which it can be asked for; empty if it has none."""
    from fluvial.schemas.codec import Undecodable, decode

    try:
        event_id = decode(data, dict[str, object]).get("event_id")
    except Undecodable:
        return ""
    return event_id[:128] if isinstance(event_id, str) else ""


def _reader(mapping_file: Path | None) -> Reader:
    """From the bytes of a line to the call; it raises Refused."""
    from fluvial.mapping import MappingError, Unmappable, load_mapping
    from fluvial.prepare import Refused
    from fluvial.schemas.codec import Undecodable, decode
    from fluvial.schemas.tool_call import ToolCall

    if mapping_file is None:

        def as_it_is(data: bytes) -> ToolCall:
            try:
                return decode(data, ToolCall)
            except Undecodable as error:
                raise Refused(str(error)) from error

        return as_it_is
    try:
        mapping = load_mapping(mapping_file)
    except MappingError as error:
        fail(str(error))

    def mapped(data: bytes) -> ToolCall:
        try:
            return mapping.call(decode(data, object))
        except (Undecodable, Unmappable) as error:
            raise Refused(str(error)) from error

    return mapped


@contextmanager
def _opened(name: str) -> Iterator["LineFile"]:
    from fluvial.lines import LineFile

    file = LineFile(name)
    try:
        yield file
    finally:
        file.close()


@contextmanager
def _connected(context: Context, timeout: float, *, spool: bool) -> Iterator["Publisher"]:
    """A publisher whose broker answers. Files need no spool: they are there to be read again after a kill."""
    from fluvial.publish import Publisher
    from fluvial.redaction import redactor_of

    logging.getLogger("fluvial.publish").addHandler(logging.NullHandler())  # the command says it itself
    settings = context.settings
    publisher = Publisher(
        settings.broker_address(),
        topic_prefix=settings.topic_prefix,
        spool=settings.spool_folder if spool else False,
        buffer_calls=5_000,
        redactor=redactor_of(settings),
    )
    try:
        if not publisher.ready(timeout):
            fail(publisher.problem)
        yield publisher
    finally:
        publisher.close(timeout=0.0)


def _give_up(publisher: "Publisher", read: int) -> None:
    delivered = publisher.counts().delivered
    problem = publisher.problem or "The broker takes too little in the time it was given (--timeout)."
    fail(
        f"{problem} {delivered:,} of {read:,} lines read are published. "
        "Run the same command again when the broker is back: nothing is published twice."
    )


@contextmanager
def _progress(size: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr if that is a terminal; the yielded function takes bytes and lines read."""
    if not sys.stderr.isatty():
        yield lambda position, lines: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("publishing"),
        BarColumn(),
        TextColumn("{task.fields[lines]:,} lines"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=size or None, lines=0)
        yield lambda position, lines: bar.update(task, completed=position, lines=lines)
