"""The Faust app of one worker: it holds the hops, the tickers' timers and the delivery of alerts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import faust

from fluvial.mapping import load_mapping
from fluvial.processors.redact import Redactor
from fluvial.redaction import redactor_of
from fluvial.schemas.topics import HOPS, LAND
from fluvial.settings import Settings
from fluvial.sinks.alerts import Webhook
from fluvial.streams.deliver import Deliver
from fluvial.streams.hop import Hop, Replayed, leave
from fluvial.streams.lag import Lag, Reader
from fluvial.streams.tick_log import TickLog
from fluvial.streams.ticker import Ticker

HOP_CLASSES = {
    "spans": "fluvial.streams.receive:Spans",
    "logs": "fluvial.streams.receive:Logs",
    "events": "fluvial.streams.receive:Events",
    "join": "fluvial.streams.join:Join",
    "land": "fluvial.streams.land:Land",
    "watch": "fluvial.streams.watch:Watch",
    "gather": "fluvial.streams.gather:Gather",
    "distil": "fluvial.streams.distil:Distil",
    "keep": "fluvial.streams.keep:Keep",
    "notify": "fluvial.streams.notify:Notify",
}
"""Where each hop is found; only those a worker runs are imported."""


def _mapping(settings: Settings) -> dict[str, Any]:
    return {"mapping": load_mapping(settings.mapping).call if settings.mapping else None}


OWN: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "spans": _mapping,
    "logs": _mapping,
    "events": _mapping,
    "join": lambda settings: {"join_seconds": settings.join_seconds, "mcp_seconds": settings.mcp_seconds},
    "land": lambda settings: {"episodes": settings.episodes, **_mapping(settings)},
    "gather": lambda settings: {
        "window_hours": settings.window_hours,
        "window_episodes": settings.window_episodes,
        "window_minimum": settings.window_minimum,
        "lateness_seconds": settings.lateness_seconds,
    },
    "keep": lambda settings: {
        "live": settings.live_insights,
        "snapshot": settings.insights,
        "quack_port": settings.quack_port,
        "snapshot_seconds": settings.snapshot_seconds,
    },
}
"""What a hop takes besides the broker: plain values, since hops read no settings."""

TICKED = ("join", "land")
"""The hops that time comes to from outside: the worker that runs one ticks into its topic."""

FAUST_SETTINGS: dict[str, Any] = {
    "processing_guarantee": "at_least_once",
    "web_enabled": False,
    "topic_allow_declare": False,
    "topic_disable_leader": True,
    "broker_session_timeout": 6.0,
    "broker_heartbeat_interval": 1.0,
    "broker_rebalance_timeout": 10.0,
    "broker_request_timeout": 30.0,
    "broker_max_poll_interval": 1_000.0,
    "broker_commit_interval": 1.0,
    "consumer_auto_offset_reset": "earliest",
    "stream_buffer_maxsize": 256,
    "producer_acks": -1,
}
"""Tried under load and under kills (docs/decisions/faust-and-transactions.md)."""


class Shell(faust.App):  # type: ignore[misc]
    """A Faust app without tables: it needs no folder."""

    def _create_directories(self) -> None:
        """Faust would make folders for tables."""

    async def on_start(self) -> None:
        if self.producer_only:
            self.finalize()  # all of Faust's own start but a consumer, whose thread's event loop nobody would close
        else:
            await super().on_start()


@dataclass(frozen=True)
class River:
    """What one worker runs."""

    app: faust.App
    hops: tuple[Hop, ...]
    readers: dict[str, Reader]
    """Whoever reads a topic here, for the watchdog."""


def build(
    settings: Settings,
    names: Sequence[str],
    fatal: Callable[[str], object] = leave,
    replayed: Replayed | None = None,
) -> River:
    """The app with these hops (names of schemas/topics.py), ready to be started.

    With `replayed` land reads that log to its end, and time stands still: the ticks are the log's.

    Raises ValueError for a name that is no hop and for a webhook's address that is none, OSError where the key of
    redaction can be neither read nor made.
    """
    broker, prefix = settings.broker_address(), settings.topic_prefix
    servers = broker.replace(",", ";")
    app = Shell(
        f"{prefix}fluvial-deliver",
        broker=f"kafka://{servers}",
        **FAUST_SETTINGS,
    )
    redactor = redactor_of(settings)
    app.producer_only = True  # there is no agent: Faust's consumer would have nothing to read
    hops = {name: _hop(name, settings, broker, fatal, redactor, replayed) for name in names}
    for hop in hops.values():
        app.add_dependency(hop)
    for name in TICKED:
        if name in hops and replayed is None:
            _add_ticker(app, hops[name], settings, broker)
    readers = {f"the hop {name}": Reader(hop.source, hop.positions, hop.life) for name, hop in hops.items()}
    if "notify" in hops and settings.webhook_url:
        deliver = Deliver(broker, Webhook(settings.webhook_url), prefix=prefix, fatal=fatal, redactor=redactor)
        app.add_dependency(deliver)
        readers["the delivery of alerts"] = Reader(deliver.source, deliver.positions, deliver.life)
    app.add_dependency(Lag(broker, readers))
    return River(app, tuple(hops.values()), readers)


def _hop(
    name: str,
    settings: Settings,
    broker: str,
    fatal: Callable[[str], object],
    redactor: Redactor,
    replayed: Replayed | None,
) -> Hop:
    if name not in HOP_CLASSES:
        raise ValueError(f"{name!r} is no hop; there are {', '.join(HOPS)}")
    module, _, kind = HOP_CLASSES[name].partition(":")
    own = OWN[name](settings) if name in OWN else {}
    if name == LAND.name:
        own["replayed"] = replayed
    own |= {"prefix": settings.topic_prefix, "fatal": fatal, "redactor": redactor}
    hop: Hop = getattr(import_module(module), kind)(broker, **own)
    return hop


def _add_ticker(app: faust.App, hop: Hop, settings: Settings, broker: str) -> None:
    topic = TickLog(app, broker, hop.plan.source, settings.topic_prefix)
    ticker = Ticker(hop, topic, idle_seconds=settings.idle_tick_seconds)
    app.add_dependency(topic)

    @app.timer(interval=settings.tick_seconds)  # type: ignore[untyped-decorator]
    async def tick() -> None:
        await ticker.beat()
