"""The command line. Each command is one file with `register(app)`, imported when it is asked for."""

import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fluvial.cli.output import Context, say, sentence

COMMANDS = (
    "up",
    "publish",
    "drain",
    "status",
    "search",
    "insights",
    "alerts",
    "trace",
    "sql",
    "dead-letters",
    "forget",
    "digest",
    "replay",
    "doctor",
)
GLOBAL_OPTIONS = ("data", "broker", "json")


class Commands(TyperGroup):
    """Loads a command's file at its first use, and gives every command the global options too."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:  # all: so that a near miss is suggested
            if name not in self.commands:
                self.commands[name] = self._load(name)
        return self.commands.get(cmd_name)

    def _load(self, name: str) -> Any:
        file = typer.Typer(rich_markup_mode=None)
        import_module(f"fluvial.cli.{name.replace('-', '_')}").register(file)
        command = typer.main.get_group(file).commands[name]
        self._share(command)
        return command

    def _share(self, command: Any) -> None:
        own = {option for parameter in command.params for option in parameter.opts}
        command.params += [p for p in self.params if p.name in GLOBAL_OPTIONS and not own & set(p.opts)]
        if isinstance(command, TyperGroup):
            for part in command.commands.values():
                self._share(part)


def _note(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    """Keep a global option in the shared Context, wherever on the line it stood."""
    context = ctx.find_root().ensure_object(Context)
    if value not in (None, False) and param.name:
        setattr(context, param.name, value)
    return value


def _version(asked: bool) -> None:
    if asked:
        from fluvial import __version__

        typer.echo(f"fluvial {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="fluvial",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help starts in a third of the time, and an error stays on one line
    context_settings={"max_content_width": 100},
)


@app.callback()
def fluvial(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of everything that is kept (FLUVIAL_DATA; default ./fluvial-data).",
            metavar="FOLDER",
            callback=_note,
            expose_value=False,
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            help="Kafka broker (FLUVIAL_BROKER; default: the local one of `fluvial up`).",
            metavar="HOST:PORT",
            callback=_note,
            expose_value=False,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object a line.", callback=_note, expose_value=False),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Memory for agents that learns from what their tools did."""


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The hook for exceptions that nobody caught: one sentence; the interpreter then exits with 1."""
    if os.environ.get("FLUVIAL_DEBUG"):
        traceback.print_exception(kind, error, trace)
    else:
        say(sentence(error))


def main() -> None:
    """The program `fluvial`. Exit codes: 0 ok, 1 it did not work, 2 wrong use, 130 interrupted by Ctrl-C."""
    sys.excepthook = _say
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background without it
    typer.main.get_command(app)(prog_name="fluvial")
