"""What every command shares: the global options as an object, and how answers and errors are said."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from fluvial.settings import Settings

WRONG_USE = 2


@dataclass
class Context:
    """The global options as they were given, before or after the command's name; `typer.Context.obj` holds it."""

    data: Path | None = None
    broker: str | None = None
    json: bool = False

    @cached_property
    def settings(self) -> "Settings":
        """Options over environment over defaults; a setting that is out of its range ends the command (exit 2)."""
        from pydantic import ValidationError

        from fluvial.settings import Settings

        given = {name: value for name in ("data", "broker") if (value := getattr(self, name)) is not None}
        try:
            return Settings(**given)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            option = f"--{name}" if name in given else f"FLUVIAL_{name.upper()}"
            problem = first["msg"].removeprefix("Value error, ")
            shown = "not usable" if name == "redaction_key" else repr(first["input"])
            fail(f"{option} is {shown}: {problem[:1].lower()}{problem[1:]}.", WRONG_USE)


def emit(obj: dict[str, Any]) -> None:
    """Print one JSON object on one line of stdout (for `--json`)."""
    import msgspec

    typer.echo(msgspec.json.encode(obj))


def say(message: str) -> None:
    """Tell a person something that is no answer: one line on stderr."""
    typer.echo(message, err=True)


def fail(message: str, code: int = 1) -> NoReturn:
    """End the command with one clear sentence on stderr. Codes: 1 it did not work, 2 wrong use."""
    say(message)
    raise typer.Exit(code)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their column names; on a terminal as wide as it is, in a pipe without a cut."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        grid.add_row(*(Text("" if cell is None else printable(str(cell))) for cell in row))
    Console(width=None if sys.stdout.isatty() else 10_000).print(grid)


def printable(text: str) -> str:
    """The text on one line, with a dot for every character that would move a terminal's cursor: agents wrote it."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "·" for c in text)


def moment(micros: int | None) -> str:
    """Microseconds UTC as `2023-08-17 21:34:05Z`; empty for None."""
    if micros is None:
        return ""
    return f"{datetime(1970, 1, 1) + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%S}Z"


def sentence(error: BaseException) -> str:
    """What went wrong, for a person. The project's own exceptions are written for people already."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted."
    if type(error).__module__.startswith("fluvial."):
        return text
    if any(kind.__module__ == "kafka.errors" for kind in type(error).__mro__):
        return f"The Kafka broker did not answer ({text}). `fluvial up` starts a local one, --broker names another."
    if isinstance(error, PermissionError) and error.filename:
        return f"No permission for {error.filename}. Change its permissions or choose another folder with --data."
    if isinstance(error, FileExistsError | NotADirectoryError) and error.filename:
        return f"{error.filename} is a file, not a folder: choose another with --data."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return f"Unexpected {type(error).__name__}: {text} (FLUVIAL_DEBUG=1 shows where)"
