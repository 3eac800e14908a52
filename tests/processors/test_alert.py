from typing import Any

import pytest
from msgspec.structs import replace

from fluvial.processors.alert import Told, alert_of, summary_of
from fluvial.schemas.drift_event import ChangeTime, DriftEvent, Level, MetricKey

HOUR = 3_600_000_000
AUGUST_17 = 1_692_308_040_000_000  # 2023-08-17 21:34 UTC

DRIFT = DriftEvent(
    event_id="e1",
    fingerprint="f1",
    key=MetricKey(tool="swap", metric="slippage_bps", chain="ethereum", token_pair="USDC/WETH"),
    direction="up",
    polarity="degrade",
    before=Level(mean=12.34, median=12.0, n=300),
    after=Level(mean=45.6, median=44.0, n=40),
    effect_sigma=3.1,
    rel_change=2.695,
    change_time=ChangeTime(est=AUGUST_17, lo=AUGUST_17, hi=AUGUST_17),
    detected_at=AUGUST_17,
    severity="warning",
)


def later(event_id: str, after: int, **change: Any) -> DriftEvent:
    return replace(DRIFT, event_id=event_id, detected_at=AUGUST_17 + after, **change)


def test_the_summary_says_what_from_where_to_where_and_since_when() -> None:
    assert summary_of(DRIFT) == (
        "slippage_bps of swap (USDC/WETH on ethereum) rose for the worse from 12.34 bps to 45.6 bps "
        "(means of 300 and 40 calls, +270%) since 2023-08-17 21:34 UTC."
    )


def test_an_error_rate_is_told_in_percent_and_a_call_without_chain_by_its_tool() -> None:
    drift = replace(
        DRIFT,
        key=MetricKey(tool="search", metric="error_rate"),
        direction="down",
        polarity="improve",
        before=Level(mean=0.371, median=0.0, n=50),
        after=Level(mean=0.02, median=0.0, n=50),
        rel_change=None,
    )
    assert summary_of(drift) == (
        "error_rate of search fell for the better from 37.1% to 2.0% "
        "(means of 50 and 50 calls) since 2023-08-17 21:34 UTC."
    )


@pytest.mark.parametrize(
    ("metric", "text"),
    [
        ("gas_gwei", "12.34 gwei"),
        ("pool_depth_usd", "12.34 USD"),
        ("latency_ms", "12.34 ms"),
        ("volatility", "12.34 to"),
    ],
)
def test_the_unit_is_read_from_the_metrics_name(metric: str, text: str) -> None:
    assert text in summary_of(replace(DRIFT, key=MetricKey(tool="swap", metric=metric)))


def test_the_same_drift_is_always_the_same_alert() -> None:
    first, again = alert_of(DRIFT, {}, HOUR), alert_of(DRIFT, {}, HOUR)
    assert first is not None
    assert first == again
    assert first.alert_id != DRIFT.event_id
    assert first.drift == DRIFT


def test_a_fingerprint_cools_down_in_event_time_and_the_next_alert_tells_what_was_withheld() -> None:
    told: dict[str, Told] = {}
    assert alert_of(DRIFT, told, HOUR) is not None
    assert alert_of(later("e2", HOUR - 1), told, HOUR) is None
    assert alert_of(later("e3", HOUR - 1), told, HOUR) is None
    alert = alert_of(later("e4", HOUR), told, HOUR)
    assert alert is not None
    assert alert.summary.endswith(" 2 like it came during the cool-down.")
    assert told == {"f1": Told(at=AUGUST_17 + HOUR, severity="warning")}


def test_another_fingerprint_does_not_wait() -> None:
    told: dict[str, Told] = {}
    assert alert_of(DRIFT, told, HOUR) is not None
    assert alert_of(later("e2", 1, fingerprint="f2"), told, HOUR) is not None


def test_what_grows_graver_is_told_at_once() -> None:
    told: dict[str, Told] = {}
    assert alert_of(DRIFT, told, HOUR) is not None
    alert = alert_of(later("e2", 1, severity="critical"), told, HOUR)
    assert alert is not None
    assert alert.severity == "critical"


def test_a_change_for_the_better_is_information() -> None:
    alert = alert_of(replace(DRIFT, polarity="improve", severity="critical"), {}, HOUR)
    assert alert is not None
    assert alert.severity == "info"
