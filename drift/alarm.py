"""From an alarm of a detector to the DriftEvent that people and insights are told."""

import math

from fluvial.drift.detector import VERSION, Alarm
from fluvial.schemas.drift_event import Direction, DriftEvent, MetricKey, Polarity, Severity
from fluvial.schemas.ids import stable_id

WORSE: dict[str, Direction] = {
    "slippage_bps": "up",
    "gas_gwei": "up",
    "latency_ms": "up",
    "cost_usd": "up",
    "error_rate": "up",
    "pnl_bps": "down",
    "pool_depth_usd": "down",
    "reward": "down",
}
"""Which way each known metric gets worse; of any other neither way is."""

WARNING, CRITICAL = 1.0, 3.0
"""Effect from which a change for the worse is a warning, and is critical."""
RATE_WARNING, RATE_CRITICAL = 0.5, 1.0
"""The same for a rate (Cohen's h): 10 to 30 % is .51, 10 to 50 % is .93."""


def drift_event(key: MetricKey, alarm: Alarm, config_version: str) -> DriftEvent:
    """The event of an alarm; its id is a function of key, metric, index of the change and configuration."""
    polarity = polarity_of(key.metric, alarm.direction)
    return DriftEvent(
        event_id=stable_id("drift", key, alarm.change_index, config_version),
        fingerprint=stable_id("drift", key, alarm.direction),
        key=key,
        direction=alarm.direction,
        polarity=polarity,
        before=alarm.before,
        after=alarm.after,
        effect_sigma=alarm.effect,
        rel_change=_relative(alarm.before.mean, alarm.after.mean),
        change_time=alarm.change_time,
        detected_at=alarm.detected_at,
        severity=_severity(key.metric, polarity, alarm.effect),
        detector_version=VERSION,
        config_version=config_version,
    )


def polarity_of(metric: str, direction: Direction) -> Polarity:
    """Whether a move of the metric is for the worse."""
    worse = WORSE.get(metric)
    if worse is None:
        return "neutral"
    return "degrade" if direction == worse else "improve"


def _severity(metric: str, polarity: Polarity, effect: float) -> Severity:
    """A change for the better is information; one of a metric without polarity is at most a warning."""
    warning, critical = (RATE_WARNING, RATE_CRITICAL) if metric == "error_rate" else (WARNING, CRITICAL)
    if polarity == "improve" or effect < warning:
        return "info"
    return "critical" if polarity == "degrade" and effect >= critical else "warning"


def _relative(before: float, after: float) -> float | None:
    change = (after - before) / abs(before) if before else math.inf
    return change if math.isfinite(change) else None
