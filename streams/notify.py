"""Notify: drift to alerts. Their delivery to a webhook is an agent of the worker (streams/deliver.py)."""

from typing import Any

from fluvial.processors.alert import Told, alert_of
from fluvial.processors.idle import idle
from fluvial.schemas.drift_event import DriftEvent
from fluvial.schemas.tick import Tick
from fluvial.schemas.topics import ALERTS, NOTIFY
from fluvial.streams.hop import Hop
from fluvial.streams.sweep import sweep_is_due
from fluvial.streams.turn import Arrival, Turn

TOLD_KEPT = 10_000
"""Fingerprints that a partition remembers."""
TOLD_IDLE = 7 * 86_400 * 1_000_000
"""How long one is remembered after its last drift, microseconds of tick time; a longer cool-down is kept to its end."""


class Notify(Hop):
    """One alert a drift; of one fingerprint at most one in `cooldown_seconds` of event time, unless it grows graver."""

    plan = NOTIFY

    def __init__(self, broker: str, *, cooldown_seconds: float = 3_600.0, **hop: Any) -> None:
        super().__init__(broker, **hop)
        self._cooldown_us = round(cooldown_seconds * 1_000_000)

    def on_record(self, turn: Turn, arrival: Arrival[DriftEvent]) -> None:
        alert = alert_of(arrival.record, turn.table("told", Told), self._cooldown_us, turn.now)
        if alert is not None:
            turn.emit(ALERTS, alert.drift.fingerprint, alert)
        turn.count("done")

    def on_tick(self, turn: Turn, tick: Tick) -> None:
        """Forget fingerprints by the tick clock: a replay has its event times, and so its cool-downs, far behind it."""
        told = turn.table("told", Told)
        if told and sweep_is_due(turn, tick, len(told), TOLD_KEPT):
            touched = {fingerprint: last.touched for fingerprint, last in told.items()}
            for fingerprint in idle(touched, tick.at, max(TOLD_IDLE, self._cooldown_us), TOLD_KEPT):
                del told[fingerprint]
