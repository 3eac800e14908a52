"""fluvial up: the whole river in one terminal."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from fluvial.cli.output import WRONG_USE, Context, emit, fail

if TYPE_CHECKING:
    from fluvial.settings import Settings
    from fluvial.streams.supervise import Change

BROKER_SECONDS = 10.0
"""How long a broker that was named may take to answer."""


def register(app: typer.Typer) -> None:
    @app.command()
    def up(
        ctx: typer.Context,
        hops: Annotated[
            str,
            typer.Option(
                help="Hops to run here, with commas (default: all of spans, logs, events, join, land, watch, gather, "
                "distil, keep, notify).",
                metavar="NAME,...",
            ),
        ] = "spans,logs,events,join,land,watch,gather,distil,keep,notify",
    ) -> None:
        """Run the river until Ctrl-C: a local Kafka (unless --broker names one) and the workers of all hops.

        Everything it keeps is in the data folder (--data); a second start goes on where the first stopped. More
        workers of a hop on another machine: `fluvial up --hops land --broker HOST:PORT`. Exit code 0 after Ctrl-C or
        SIGTERM, 1 when it could not start or a worker ends again and again.
        """
        from fluvial.streams.supervise import groups_of

        context: Context = ctx.obj
        names = [name.strip() for name in hops.split(",") if name.strip()]
        try:
            groups = groups_of(names)
        except ValueError as error:
            fail(f"--hops: {error}.", WRONG_USE)
        if not groups:
            fail("--hops names no hop.", WRONG_USE)
        with interrupts():
            try:
                _run(context.settings, groups, Terminal(context.json))
            except KeyboardInterrupt:
                Terminal(context.json).stopped()


def _run(settings: "Settings", groups: dict[str, tuple[str, ...]], terminal: "Terminal") -> None:
    """Start everything and keep it running; whatever ends this ends everything."""
    from fluvial.streams.admin import ensure_topics, wait_for_broker
    from fluvial.streams.broker import LocalBroker
    from fluvial.streams.child import Child, worker_command
    from fluvial.streams.rebuild import refuse_unfinished
    from fluvial.streams.supervise import Change, Supervisor, sole

    settings = settings.model_copy(update={"data": settings.data.absolute()})
    with ExitStack() as everything:
        everything.enter_context(sole(settings.data))
        refuse_unfinished(settings.data)
        settings.logs.mkdir(exist_ok=True)
        broker = None
        if settings.broker:
            wait_for_broker(settings.broker, BROKER_SECONDS)
        else:
            terminal.say("Starting Apache Kafka (the first time its 60 MB are fetched) ...")
            broker = LocalBroker(settings.kafka, settings.kafka_port, settings.java)
            everything.callback(broker.stop)
            broker.start()
            terminal.tell(Change("broker", "ready", broker.pid))
        address = settings.broker_address()
        ensure_topics(address, prefix=settings.topic_prefix)
        terminal.begin(settings, address, groups)
        environment = {"FLUVIAL_DATA": str(settings.data), "FLUVIAL_BROKER": address}
        children = [
            Child(name, worker_command(hops), settings.logs / f"{name}.log", environment)
            for name, hops in groups.items()
        ]
        supervisor = Supervisor(children, terminal.tell, broker)
        everything.callback(supervisor.stop)
        supervisor.run()


@contextmanager
def interrupts() -> Iterator[None]:
    """SIGTERM and a closed terminal do what Ctrl-C does, which works for a job in the background too."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Terminal:
    """What `up` says: where things are, and one line a change."""

    def __init__(self, json: bool) -> None:
        self._json = json
        self._waiting: set[str] = set()

    def begin(self, settings: "Settings", broker: str, groups: dict[str, tuple[str, ...]]) -> None:
        """Where everything is, and what to do next."""
        self._waiting = set(groups)
        if self._json:
            emit({"what": "begin", "broker": broker, "data": str(settings.data), "logs": str(settings.logs)})
            return
        kind = "given" if settings.broker else f"Apache Kafka on this machine, log in {settings.logs / 'kafka.log'}"
        typer.echo(f"""
  broker    {broker} ({kind})
  data      {settings.data}
  logs      {settings.logs}/ {", ".join(f"{name}.log" for name in groups)}
  publish   fluvial publish calls.jsonl        or, in an agent: from fluvial import Publisher
  look      fluvial status · fluvial search "TEXT" · fluvial insights · fluvial alerts
  SQL       fluvial sql "SELECT * FROM insights" or any DuckDB client on {settings.insights}
  stop      Ctrl-C
""")

    def tell(self, change: "Change") -> None:
        """One line."""
        if self._json:
            emit({"what": change.what, "name": change.child, "pid": change.pid} | _details(change))
            return
        typer.echo(f"{time.strftime('%H:%M:%S')}  {change.child:<8} {_words(change)}")
        if change.what == "ready" and change.child in self._waiting:
            self._waiting.discard(change.child)
            if not self._waiting:
                typer.echo(f"{time.strftime('%H:%M:%S')}  all hops run")
        sys.stdout.flush()

    def say(self, message: str) -> None:
        """Something for people only."""
        if not self._json:
            typer.echo(message)

    def stopped(self) -> None:
        """The end."""
        if self._json:
            emit({"what": "end"})
        else:
            typer.echo("Stopped. `fluvial up` goes on from here.")


def _details(change: "Change") -> dict[str, object]:
    if change.what not in ("ended", "stopped"):
        return {}
    return {"code": change.code} | (
        {"again_in": change.pause, "reason": change.reason} if change.what == "ended" else {}
    )


def _words(change: "Change") -> str:
    if change.what == "started":
        return f"starts (process {change.pid})"
    if change.what == "ready":
        return "runs"
    if change.what == "stopped":
        return "stopped"
    code = change.code or 0
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    why = f": {change.reason}" if change.reason else ""
    again = "it is given up" if change.pause is None else f"it starts again in {change.pause:g} s"
    return f"{how}{why}; {again}"
