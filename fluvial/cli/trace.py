"""fluvial trace: every station of one event."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli.output import Context, emit, fail, moment, printable, say

if TYPE_CHECKING:
    from fluvial.schemas.episode import Episode
    from fluvial.streams.trace import Trace
    from fluvial.streams.witness import Station


def register(app: typer.Typer) -> None:
    @app.command()
    def trace(
        ctx: typer.Context,
        name: Annotated[str, typer.Argument(help="Id of an event (as `search` shows it), of a run or of a call.")],
        limit: Annotated[int, typer.Option(help="Calls of a run to tell of, at most.", min=1)] = 20,
        timeout: Annotated[float, typer.Option(help="Seconds to wait for the log's next records.", min=0.1)] = 30.0,
    ) -> None:
        """Every station of one event: published, landed, watched, clustered, learnt from, drifted, alerted.

        watched: the metrics it was watched under, and the key of their detectors. gathering: the window it is in, while
        that is open. learnt: insights that name it as evidence. predicted: claims that were known before it and spoke
        of it, and the vote that came of it. Drifts are those of the event's tool, chain and pair within an hour of it.

        Of a run id, or a call id that several calls have, the calls are listed first and then each is told in short;
        then the run's dead letters. With --json one object a line, times in microseconds since 1970 UTC.
        """
        from fluvial.cli.kept import Kept
        from fluvial.streams.log_reader import LogReader
        from fluvial.streams.trace import Trace

        context: Context = ctx.obj
        settings = context.settings
        tell = emit if context.json else _tell
        found = False
        with LogReader(settings.broker_address(), timeout=timeout) as reader:
            for station in _stations(Trace(reader, Kept(settings), settings.topic_prefix), name, limit):
                found = True
                tell(station)
        if not found:
            fail(f"No event, run or call is called {printable(name)}. `fluvial search` shows ids of events.")


def _stations(trace: "Trace", name: str, limit: int) -> "Iterator[Station]":
    """Of one event, or of the calls of a run or call id."""
    calls = [] if trace.knows(name) else trace.calls(name, limit + 1)
    if len(calls) == 1:
        yield from trace.stations(calls[0].id)
    elif calls:
        yield from _in_turn(trace, calls, limit)
        yield from trace.died(name)
    elif letters := [] if trace.knows(name) else list(trace.died(name)):
        yield from letters
    else:
        yield from trace.stations(name)


def _in_turn(trace: "Trace", calls: "list[Episode]", limit: int) -> "Iterator[Station]":
    """A list of the calls, then how often each is at which station."""
    if len(calls) > limit:
        say(f"Only {limit} of its calls are told: --limit tells of more.")
    fields = ("id", "run_id", "call_id", "seq", "tool", "status", "started_at")
    for call in calls[:limit]:
        yield {"station": "call"} | {field: getattr(call, field) for field in fields}
    for event_id, stations in trace.landed(calls[:limit]).items():
        counts = Counter(station["station"] for station in stations)
        yield {"station": "in short", "id": event_id, "stations": dict(counts)}


def _tell(station: "Station") -> None:
    typer.echo(f"{station['station']:<12}{printable(TOLD[station['station']](station))}")


def _published(at: "Station") -> str:
    return f"{at['topic']}[{at['partition']}]@{at['offset']}, {moment(at['time'])}"


def _dead_letter(at: "Station") -> str:
    return f"{at['hop']}: {at['reason']} ({at['id']})"


def _landed(at: "Station") -> str:
    names = ("source", "run_id", "tool", "chain", "token_pair", "status", "error_type")
    call = " ".join(str(at[name]) for name in names if name in at)
    return f"{call}, {moment(at['started_at'])}, {at['redactions']} redacted: {at['text']}"


def _watched(at: "Station") -> str:
    values = ", ".join(f"{name} {value:,.6g}" for name, value in at["metrics"].items())
    return f"{values or 'no metric'} ({at['key']})"


def _gathering(at: "Station") -> str:
    return f"{at['n']} calls of {at['tool']} so far, {moment(at['window_start'])} to {moment(at['window_end'])}"


def _predicted(at: "Station") -> str:
    confidence = f" {at['confidence']:.2f}" if "confidence" in at else ""
    what = f": {at['content']}" if "content" in at else ""
    vote = f"it came to an {at['vote']}" if at["vote"] else "no vote has come of it"
    return f"{at['state']}{confidence}{what} (expected {at['expected'] or 'something'}; {vote}; {at['id']})"


def _call(at: "Station") -> str:
    names = ("run_id", "call_id", "seq", "tool", "status")
    return (
        f"{at['id']}  {' '.join(str(at[name]) for name in names if at[name] is not None)}, {moment(at['started_at'])}"
    )


def _in_short(at: "Station") -> str:
    counts = (f"{name} {count}" if count > 1 else name for name, count in at["stations"].items())
    return f"{at['id']}  {', '.join(counts)}"


def _clustered(at: "Station") -> str:
    window = f"{moment(at['window_start'])} to {moment(at['window_end'])}"
    return f"{at['n']} calls of {at['tool']}, {at['failures']} failed, {window} ({at['id']})"


def _learnt(at: "Station") -> str:
    confidence = f" {at['confidence']:.2f}" if "confidence" in at else ""
    what = f": {at['content']}" if "content" in at else ""
    return f"{at['state']}{confidence}{what} (evidence for {', '.join(at['evidence_for'])}; {at['id']})"


def _drifted(at: "Station") -> str:
    levels = f"{at['before']:,.4g} -> {at['after']:,.4g}"
    return f"{at['metric']} {levels} {at['polarity']} {at['severity']}, {moment(at['changed_at'])} ({at['id']})"


def _alerted(at: "Station") -> str:
    return f"{at['severity']}: {at['summary']} ({at['id']})"


TOLD: dict[str, Callable[["Station"], str]] = {
    "published": _published,
    "dead letter": _dead_letter,
    "waiting": lambda at: f"{at['hop']} has not come to it yet",
    "handled": lambda at: (
        f"{at['hop']} has handled it; its episode was forgotten (`fluvial forget`) or is in another folder (--data)"
    ),
    "landed": _landed,
    "watched": _watched,
    "gathering": _gathering,
    "clustered": _clustered,
    "learnt": _learnt,
    "predicted": _predicted,
    "drifted": _drifted,
    "alerted": _alerted,
    "call": _call,
    "in short": _in_short,
}
"""How each station is told to a person."""
