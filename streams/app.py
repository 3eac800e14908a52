"""The Faust app of one worker: it holds the hops, the ticker's timer and the agent that delivers alerts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import faust

from fluvial.schemas.topics import ALERTS, DEAD_LETTERS, HOPS
from fluvial.settings import Settings
from fluvial.sinks.alerts import Webhook
from fluvial.streams.committed import SCHEME
from fluvial.streams.deliver import deliver, put_aside_in
from fluvial.streams.hop import Hop, leave
from fluvial.streams.lag import GroupPositions, Lag, Reader
from fluvial.streams.ticker import Ticker
from fluvial.streams.tool_calls import ToolCallsLog

HOP_CLASSES = {
    "land": "fluvial.streams.land:Land",
    "watch": "fluvial.streams.watch:Watch",
    "gather": "fluvial.streams.gather:Gather",
    "distil": "fluvial.streams.distil:Distil",
    "keep": "fluvial.streams.keep:Keep",
    "notify": "fluvial.streams.notify:Notify",
}
"""Where each hop is found; only those a worker runs are imported."""

OWN: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "land": lambda settings: {"episodes": settings.episodes},
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


def build(settings: Settings, names: Sequence[str], fatal: Callable[[str], object] = leave) -> River:
    """The app with these hops (names of schemas/topics.py), ready to be started.

    Raises ValueError for a name that is no hop and for a webhook's address that is none.
    """
    broker, prefix = settings.broker_address(), settings.topic_prefix
    servers = broker.replace(",", ";")
    app = Shell(
        f"{prefix}fluvial-deliver",
        broker_consumer=f"{SCHEME}://{servers}",
        broker_producer=f"kafka://{servers}",
        **FAUST_SETTINGS,
    )
    hops = {name: _hop(name, settings, broker) for name in names}
    for hop in hops.values():
        app.add_dependency(hop)
    if "land" in hops:
        _add_ticker(app, hops["land"], settings, broker)
    readers = {f"the hop {name}": Reader(hop.source, hop.positions) for name, hop in hops.items()}
    if "notify" in hops and settings.webhook_url:
        readers["the delivery of alerts"] = _add_delivery(app, settings.webhook_url, broker, prefix, fatal)
    else:
        app.producer_only = True  # Faust's consumer has nothing to read without an agent
    app.add_dependency(Lag(broker, readers))
    return River(app, tuple(hops.values()), readers)


def _hop(name: str, settings: Settings, broker: str) -> Hop:
    if name not in HOP_CLASSES:
        raise ValueError(f"{name!r} is no hop; there are {', '.join(HOPS)}")
    module, _, kind = HOP_CLASSES[name].partition(":")
    own = OWN[name](settings) if name in OWN else {}
    hop: Hop = getattr(import_module(module), kind)(broker, prefix=settings.topic_prefix, **own)
    return hop


def _add_ticker(app: faust.App, land: Hop, settings: Settings, broker: str) -> None:
    tool_calls = ToolCallsLog(app, broker, settings.topic_prefix)
    ticker = Ticker(land, tool_calls, idle_seconds=settings.idle_tick_seconds)
    app.add_dependency(tool_calls)

    @app.timer(interval=settings.tick_seconds)  # type: ignore[untyped-decorator]
    async def tick() -> None:
        await ticker.beat()


def _add_delivery(app: faust.App, url: str, broker: str, prefix: str, fatal: Callable[[str], object]) -> Reader:
    webhook, alerts = Webhook(url), ALERTS.named(prefix)
    app.async_exit_stack.push_async_callback(webhook.close)
    reached = GroupPositions(broker, app.conf.id, alerts, ALERTS.partitions)
    app.add_dependency(reached)
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    put_aside = put_aside_in(app.topic(DEAD_LETTERS.named(prefix), **raw))

    @app.agent(app.topic(alerts, **raw), name="deliver")  # type: ignore[untyped-decorator]
    async def agent(stream: Any) -> None:
        await deliver(stream, webhook, put_aside, fatal)

    return Reader(alerts, reached.read, slack=2)  # its last transaction ends in a mark
