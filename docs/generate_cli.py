"""Write docs/cli.md, the help of every command: `python docs/generate_cli.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from fluvial.cli import app

PAGE = Path(__file__).parent / "cli.md"
WIDTH = 100

INTRODUCTION = """# The command line

`--data`, `--broker` and `--json` may stand before or after the command's name. An option wins over its environment
variable ([settings](settings.md)), which wins over the default.

| exit code | meaning |
|---|---|
| 0 | it worked |
| 1 | it did not work; one sentence on stderr says why and what to do |
| 2 | wrong use: an unknown command or option, a value out of its range |
| 130 | ended by Ctrl-C (`fluvial up` and `fluvial alerts --follow` end with 0: that is how they are ended) |

With `--json` every answer is one JSON object a line on stdout; progress and errors go to stderr. `FLUVIAL_DEBUG=1`
shows the traceback behind an error. This page is made by `python docs/generate_cli.py`.
"""


def commands(command: Any, parent: Any = None, name: str = "fluvial") -> Iterator[tuple[str, Any, str]]:
    """Every command below `command` and itself: path, command, help text."""
    context = typer.Context(command, parent=parent, info_name=name, terminal_width=WIDTH)
    with context:
        yield context.command_path, command, command.get_help(context)
        if isinstance(command, TyperGroup):
            for part in command.list_commands(context):
                yield from commands(command.get_command(context, part), context, part)


def page() -> str:
    sections = [
        f"{'#' * (2 + path.count(' '))} {path}\n\n```text\n{text.rstrip()}\n```\n"
        for path, _, text in commands(typer.main.get_command(app))
    ]
    return "\n".join([INTRODUCTION, *sections])


if __name__ == "__main__":
    PAGE.write_text(page())
