"""An alarm becomes an event that says what is worse."""

import msgspec
import pytest

from fluvial.drift.alarm import drift_event, polarity_of
from fluvial.drift.detector import Alarm
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey, Severity

KEY = MetricKey(tool="swap", metric="gas_gwei", chain="polygon", token_pair="USDC/WETH")
ALARM = Alarm(
    index=640,
    change_index=600,
    direction="up",
    before=Level(mean=50.0, median=48.0, n=600),
    after=Level(mean=150.0, median=140.0, n=41),
    effect=3.5,
    change_time=ChangeTime(est=2_000_000, lo=1_000_000, hi=3_000_000),
    detected_at=9_000_000,
)


def test_the_event_says_all_that_the_alarm_knows() -> None:
    event = drift_event(KEY, ALARM, "c1")
    assert event == DriftEvent(
        event_id=event.event_id,
        fingerprint=event.fingerprint,
        key=KEY,
        direction="up",
        polarity="degrade",
        before=ALARM.before,
        after=ALARM.after,
        effect_sigma=3.5,
        rel_change=2.0,
        change_time=ALARM.change_time,
        detected_at=9_000_000,
        severity="critical",
        detector_version=1,
        config_version="c1",
    )
    assert decode(encode(event), DriftEvent) == event


def test_the_id_is_that_of_key_change_and_configuration_only() -> None:
    same = msgspec.structs.replace(ALARM, index=700, effect=1.0, detected_at=1, after=ALARM.before)
    assert drift_event(KEY, same, "c1").event_id == drift_event(KEY, ALARM, "c1").event_id
    others = [
        drift_event(msgspec.structs.replace(KEY, metric="latency_ms"), ALARM, "c1"),
        drift_event(msgspec.structs.replace(KEY, chain=None), ALARM, "c1"),
        drift_event(KEY, msgspec.structs.replace(ALARM, change_index=601), "c1"),
        drift_event(KEY, ALARM, "c2"),
        drift_event(KEY, ALARM, "c1"),
    ]
    assert len({event.event_id for event in others}) == 5


def test_the_fingerprint_is_that_of_key_and_direction() -> None:
    later = msgspec.structs.replace(ALARM, change_index=9000, effect=1.0)
    down = msgspec.structs.replace(ALARM, direction="down")
    assert drift_event(KEY, later, "c2").fingerprint == drift_event(KEY, ALARM, "c1").fingerprint
    assert drift_event(KEY, down, "c1").fingerprint != drift_event(KEY, ALARM, "c1").fingerprint


@pytest.mark.parametrize("metric", ["slippage_bps", "gas_gwei", "latency_ms", "cost_usd", "error_rate"])
def test_up_is_worse(metric: str) -> None:
    assert (polarity_of(metric, "up"), polarity_of(metric, "down")) == ("degrade", "improve")


@pytest.mark.parametrize("metric", ["pnl_bps", "pool_depth_usd", "reward"])
def test_down_is_worse(metric: str) -> None:
    assert (polarity_of(metric, "up"), polarity_of(metric, "down")) == ("improve", "degrade")


def test_of_an_unknown_metric_neither_is_worse() -> None:
    assert (polarity_of("volatility", "up"), polarity_of("volatility", "down")) == ("neutral", "neutral")


@pytest.mark.parametrize(
    ("metric", "direction", "effect", "severity"),
    [
        ("gas_gwei", "up", 0.7, "info"),
        ("gas_gwei", "up", 1.0, "warning"),
        ("gas_gwei", "up", 3.0, "critical"),
        ("gas_gwei", "down", 9.0, "info"),
        ("tick_range_bp", "up", 9.0, "warning"),
        ("error_rate", "up", 0.4, "info"),
        ("error_rate", "up", 0.5, "warning"),
        ("error_rate", "up", 1.0, "critical"),
        ("error_rate", "down", 3.0, "info"),
    ],
)
def test_severity_follows_from_the_effect(metric: str, direction: str, effect: float, severity: Severity) -> None:
    alarm = msgspec.structs.replace(ALARM, direction=direction, effect=effect)
    event = drift_event(msgspec.structs.replace(KEY, metric=metric), alarm, "c1")
    assert event.severity == severity


@pytest.mark.parametrize(
    ("before", "after", "relative"),
    [(50.0, 150.0, 2.0), (-50.0, 150.0, 4.0), (0.0, 3.0, None), (1e-300, 1e77, None)],
)
def test_the_relative_change_is_left_out_where_there_is_none(
    before: float, after: float, relative: float | None
) -> None:
    alarm = msgspec.structs.replace(
        ALARM, before=Level(mean=before, median=0.0, n=1), after=Level(mean=after, median=0.0, n=1)
    )
    assert drift_event(KEY, alarm, "c1").rel_change == relative
