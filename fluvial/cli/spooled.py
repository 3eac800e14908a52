"""fluvial publish --spooled: what agents that ended have left in their spools, into the river."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fluvial.cli.output import Context, emit, fail, say

if TYPE_CHECKING:
    from fluvial.counts import Counts
    from fluvial.publish import Publisher

LOOK_SECONDS = 0.5


def report(context: Context, counts: "Counts") -> None:
    """Say how much was sent, and what stays where it is."""
    if context.json:
        emit({"published": counts.delivered, "damaged": counts.damaged, "torn": counts.torn})
    else:
        typer.echo(f"{counts.delivered:,} calls published that ended agents had left")
        if counts.damaged:
            say(f"{counts.damaged:,} places in the spools were damaged; what stood there is lost.")
    settings = context.settings
    for place in _others(settings.spool_folder):
        say(f"{place} still has spools: of agents that run, or meant for the broker and topics of its name.")


def send(publisher: "Publisher", timeout: float, advance: Callable[[int, int], None]) -> "Counts":
    """The counts when everything that is left for the broker is sent.

    Ends the command if the broker takes nothing for `timeout` seconds.
    """
    counts, deadline = publisher.counts(), time.monotonic() + timeout
    while not publisher.flush(LOOK_SECONDS):
        before, counts = counts, publisher.counts()
        if counts.delivered != before.delivered:
            deadline = time.monotonic() + timeout
        if counts.failed or time.monotonic() > deadline:
            problem = publisher.problem or "The broker takes too little in the time it was given (--timeout)."
            fail(
                f"{problem} {counts.delivered:,} calls are published, {counts.failed:,} were refused; what is left "
                "stays in the spool. Run the same command again when the broker takes it."
            )
        advance(0, counts.delivered)
    return publisher.counts()


def _others(root: Path) -> Iterator[Path]:
    """Folders of brokers in which a spool is left."""
    for place in sorted(root.glob("*/")):
        if next(place.glob("*.lock"), None):
            yield place
