"""From a drift to what a subscriber is told: one sentence, at most once in a while for the same fingerprint."""

from collections.abc import MutableMapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from fluvial.schemas.alert import Alert
from fluvial.schemas.drift_event import DriftEvent, Level, MetricKey, Severity
from fluvial.schemas.ids import stable_id

_RANK: dict[Severity, int] = {"info": 0, "warning": 1, "critical": 2}

_UNITS = {
    "bps": "bps",
    "gwei": "gwei",
    "usd": "USD",
    "ms": "ms",
    "seconds": "s",
    "pct": "%",
    "percent": "%",
    "tokens": "tokens",
    "bytes": "bytes",
}
"""The last word of a metric's name names its unit."""

_SHARES = ("error_rate", "success_rate")
"""Metrics between 0 and 1 that people read in percent."""


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last alert of a fingerprint: when (event time, microseconds UTC), how grave, how many were withheld since.

    `touched` is the tick time of the last drift of the fingerprint, told or not, 0 before the first tick.
    """

    at: int
    severity: Severity
    withheld: int = 0
    touched: int = 0


def alert_of(drift: DriftEvent, told: MutableMapping[str, Told], cooldown_us: int, now: int = 0) -> Alert | None:
    """The alert for a drift, or None while its fingerprint cools down (`told`, in event time) and it is no graver.

    `now` is the tick clock. Changes for the better are told as `info`. The same drift always has the same `alert_id`.
    """
    severity: Severity = "info" if drift.polarity == "improve" else drift.severity
    last = told.get(drift.fingerprint)
    if last and abs(drift.detected_at - last.at) < cooldown_us and _RANK[severity] <= _RANK[last.severity]:
        told[drift.fingerprint] = replace(last, withheld=last.withheld + 1, touched=now)
        return None
    told[drift.fingerprint] = Told(at=drift.detected_at, severity=severity, touched=now)
    return Alert(
        alert_id=stable_id("alert", drift.event_id),
        severity=severity,
        summary=summary_of(drift, withheld=last.withheld if last else 0),
        at=drift.detected_at,
        drift=drift,
    )


def summary_of(drift: DriftEvent, withheld: int = 0) -> str:
    """One sentence for a person: what, from where to where, since when."""
    metric, before, after = drift.key.metric, drift.before, drift.after
    verb = "rose" if drift.direction == "up" else "fell"
    verdict = {"degrade": " for the worse", "improve": " for the better", "neutral": ""}[drift.polarity]
    change = "" if drift.rel_change is None else f", {drift.rel_change:+.0%}"
    since = datetime(1970, 1, 1) + timedelta(microseconds=drift.change_time.est)
    more = f" {withheld} like it came during the cool-down." if withheld else ""
    return (
        f"{metric} of {_name_of(drift.key)} {verb}{verdict} from {_value(before, metric)} to {_value(after, metric)} "
        f"(means of {before.n} and {after.n} calls{change}) since {since:%Y-%m-%d %H:%M} UTC.{more}"
    )


def _name_of(key: MetricKey) -> str:
    place = " ".join(part for part in (key.token_pair, key.chain and f"on {key.chain}") if part)
    return f"{key.tool} ({place})" if place else key.tool


def _value(level: Level, metric: str) -> str:
    if metric in _SHARES:
        return f"{level.mean:.1%}"
    unit = _UNITS.get(metric.rpartition("_")[2])
    return f"{level.mean:,.4g}" if unit is None else f"{level.mean:,.4g} {unit}"
