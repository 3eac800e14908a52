"""Notify: drift to alerts. Their delivery to a webhook is an agent of the worker (streams/deliver.py)."""

from typing import Any

from fluvial.processors.alert import Told, alert_of
from fluvial.schemas.drift_event import DriftEvent
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import ALERTS, NOTIFY
from fluvial.streams.hop import Hop
from fluvial.streams.turn import Arrival, Turn


class Notify(Hop):
    """One alert a drift; of one fingerprint at most one in `cooldown_seconds` of event time, unless it grows graver."""

    plan = NOTIFY

    def __init__(self, broker: str, *, cooldown_seconds: float = 3_600.0, **hop: Any) -> None:
        super().__init__(broker, **hop)
        self._cooldown_us = round(cooldown_seconds * 1_000_000)

    def on_record(self, turn: Turn, arrival: Arrival[DriftEvent]) -> None:
        alert = alert_of(arrival.record, turn.table("told", Told), self._cooldown_us)
        if alert is not None:
            turn.emit(ALERTS, alert.drift.fingerprint, alert)

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        """Nothing waits for time here: a cool-down ends with the next drift that comes after it."""
