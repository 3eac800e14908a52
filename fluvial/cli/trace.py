"""fluvial trace: every station of one event."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fluvial.cli.output import Context, emit, fail, moment, printable, say

if TYPE_CHECKING:
    from fluvial.settings import Settings
    from fluvial.streams.trace import FindEpisode, FindInsights, Station


def register(app: typer.Typer) -> None:
    @app.command()
    def trace(
        ctx: typer.Context,
        event_id: Annotated[str, typer.Argument(help="The event's id, as `search` and `dead-letters` show it.")],
        timeout: Annotated[float, typer.Option(help="Seconds to wait for the log's next records.", min=0.1)] = 30.0,
    ) -> None:
        """Every station of one event: published, dead letter, landed, clustered, learnt, drifted, alerted.

        Drifts are those of the event's tool, chain and pair within an hour of it. With --json one object a station,
        times in microseconds since 1970 UTC.
        """
        from fluvial.streams.log_reader import LogReader
        from fluvial.streams.trace import Trace

        context: Context = ctx.obj
        settings = context.settings
        found = False
        with LogReader(settings.broker_address(), timeout=timeout) as reader:
            tracing = Trace(reader, _episodes(settings), _insights(settings), settings.topic_prefix)
            for station in tracing.stations(event_id):
                found = True
                if context.json:
                    emit(station)
                else:
                    typer.echo(f"{station['station']:<12}{printable(TOLD[station['station']](station))}")
        if not found:
            fail(f"No event is called {printable(event_id)}. `fluvial search` shows the ids of events that landed.")


def _published(at: "Station") -> str:
    return f"{at['topic']}[{at['partition']}]@{at['offset']}, {moment(at['time'])}"


def _dead_letter(at: "Station") -> str:
    return f"{at['hop']}: {at['reason']} ({at['id']})"


def _landed(at: "Station") -> str:
    names = ("source", "run_id", "tool", "chain", "token_pair", "status", "error_type")
    call = " ".join(str(at[name]) for name in names if name in at)
    return f"{call}, {moment(at['started_at'])}, {at['redactions']} redacted: {at['text']}"


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
    "handled": lambda at: f"{at['hop']} has handled it; its episode is not in this data folder (--data)",
    "landed": _landed,
    "clustered": _clustered,
    "learnt": _learnt,
    "drifted": _drifted,
    "alerted": _alerted,
}
"""How each station is told to a person."""


def _episodes(settings: "Settings") -> "FindEpisode":
    """Asks the episode store; there may be none yet."""
    from fluvial.sinks.episodes import EpisodeStore, NoEpisodes

    try:
        return EpisodeStore.open(settings.episodes).get
    except NoEpisodes:
        return lambda event_id: None


def _insights(settings: "Settings") -> "FindInsights":
    """Asks the live insights, else the snapshot; there may be neither yet. A snapshot that cannot be read is said."""
    from fluvial.sinks.insights_query import NoInsights, Unreadable, ask, literal

    def find(ids: Sequence[str]) -> dict[str, "Station"]:
        wanted = ", ".join(map(literal, ids))
        query = f"SELECT id, content, category, state, confidence FROM insights WHERE id IN ({wanted})"
        try:
            answer = ask(query, settings.live_insights.parent, settings.insights)
        except NoInsights:
            return {}
        except Unreadable as error:
            say(str(error))
            return {name: {"state": "unreadable"} for name in ids}
        return {row[0]: dict(zip(answer.columns[1:], row[1:], strict=True)) for row in answer.rows}

    return find
