"""fluvial status: how far each hop has come."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from fluvial.cli.output import Context, emit, say, table

if TYPE_CHECKING:
    from fluvial.settings import Settings
    from fluvial.streams.balance import Flow
    from fluvial.streams.progress import HopStatus

ANSWER_SECONDS = 10.0
COLUMNS = ("hop", "in", "done", "duplicate", "dead", "late", "out", "lag", "last progress")


def register(app: typer.Typer) -> None:
    @app.command()
    def status(ctx: typer.Context) -> None:
        """How far each hop has come, all its partitions together, since the river's first event.

        in: records handled; each is counted once as done (landed, watched, learnt from), duplicate (known by its id
        already), dead (put aside as a dead letter) or late (came after its window had closed): a hop whose counts do
        not add up to that is named. out: records sent on. lag: records published to the hop's source topic that it has
        still to handle; ticks are not counted, save beyond the next 2,000 offsets of a partition, where ticks and
        transaction marks are. last progress: when a partition of the hop last committed (with --json: microseconds
        since 1970 UTC). What a hop sent has to be what the next one has read or waits for: a topic where that does not
        hold is named.
        """
        from fluvial.streams.balance import open_flows
        from fluvial.streams.log_reader import LogReader
        from fluvial.streams.progress import status as status_of

        context: Context = ctx.obj
        settings = context.settings
        with LogReader(settings.broker_address(), timeout=ANSWER_SECONDS) as reader:
            hops = status_of(reader, settings.topic_prefix)
            flows = open_flows(reader, settings.topic_prefix)
        now = time.time_ns() // 1_000
        if context.json:
            for hop in hops:
                emit(as_object(hop))
        else:
            table(COLUMNS, [_row(hop, now) for hop in hops])
        for hop in hops:
            if hop.unaccounted:
                say(f"{hop.hop} does not account for {abs(hop.unaccounted):,} of its records: please report it.")
        for flow in flows:
            say(in_words(flow))
        if warning := standstill(hops, now, settings):
            say(warning)


def as_object(hop: "HopStatus") -> dict[str, object]:
    """The hop under the names that scripts rely on."""
    return {
        "hop": hop.hop,
        "in": hop.read,
        "done": hop.done,
        "duplicate": hop.duplicate,
        "dead": hop.dead,
        "late": hop.late,
        "out": hop.emitted,
        "lag": hop.lag,
        "last_progress": hop.last_progress,
    }


def in_words(flow: "Flow") -> str:
    """What does not add up between two hops, for a person."""
    wrong = f"{flow.missing:,} are missing" if flow.missing > 0 else f"{-flow.missing:,} more than were sent"
    return (
        f"The balance of the topic {flow.topic} does not close: {flow.sent:,} sent, {flow.reader} has read "
        f"{flow.read:,} and waits for {flow.waiting:,}: {wrong}. Please report it; `fluvial replay` rebuilds."
    )


def _row(hop: "HopStatus", now: int) -> tuple[str, ...]:
    figures = (hop.read, hop.done, hop.duplicate, hop.dead, hop.late, hop.emitted, hop.lag)
    return (hop.hop, *(f"{figure:,}" for figure in figures), ago(hop.last_progress, now))


def ago(moment: int | None, now: int) -> str:
    """`3 s ago`; both in microseconds UTC."""
    if moment is None:
        return "never"
    seconds = max(0, now - moment) // 1_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def standstill(hops: Sequence["HopStatus"], now: int, settings: "Settings") -> str | None:
    """What to tell if nobody seems to work: ticks come at least every `idle_tick_seconds`, and each is progress."""
    patience = 1_000_000 * max(60.0, 3 * settings.idle_tick_seconds)
    still = [hop for hop in hops if hop.last_progress is None or now - hop.last_progress > patience]
    if len(still) == len(hops):
        last = ago(max((hop.last_progress for hop in hops if hop.last_progress is not None), default=None), now)
        return f"No worker seems to run (last progress: {last}). `fluvial up` starts the workers."
    behind = [hop.hop for hop in still if hop.lag]
    if behind:
        return f"Standing still with work to do: {', '.join(behind)}. Look at {settings.logs}, or start `fluvial up`."
    return None
