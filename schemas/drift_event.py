"""DriftEvent: a metric of a key has changed."""

from typing import Literal

from msgspec import Struct


class MetricKey(Struct, frozen=True, kw_only=True, omit_defaults=True, order=True):
    """What is watched: one metric of one tool on one chain and pair."""

    tool: str
    metric: str
    chain: str | None = None
    token_pair: str | None = None


class Level(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A metric over a stretch of `n` values, in the metric's own unit."""

    mean: float
    median: float
    n: int


class ChangeTime(Struct, frozen=True, kw_only=True):
    """When the change happened: estimate and bounds, microseconds UTC."""

    est: int
    lo: int
    hi: int


Severity = Literal["info", "warning", "critical"]
Direction = Literal["up", "down"]
Polarity = Literal["degrade", "improve", "neutral"]


class DriftEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="drift"):
    """One change of one metric. `event_id` is a function of key, metric, change offset and configuration only."""

    event_id: str
    fingerprint: str
    """The same for every change of this key in this direction."""
    key: MetricKey
    direction: Direction
    polarity: Polarity
    before: Level
    after: Level
    effect_sigma: float
    rel_change: float | None
    """(after - before) / |before|; None where before is 0."""
    change_time: ChangeTime
    detected_at: int
    severity: Severity
    scope: Literal["key", "cohort"] = "key"
    group_id: str = ""
    detector_version: int = 1
    config_version: str = ""
