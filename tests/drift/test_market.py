"""On real series: the Uniswap minutes with the crash of 2023-08-17, and outcomes of real agents."""

import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from fluvial.drift.detector import RATE, VALUE, Alarm

Series = list[tuple[float, int]]
Read = Callable[[str, str], Series]
Alarms = Callable[..., list[Alarm]]

UNISWAP = "uniswap_v3_polygon_usdc_weth_2023_08"
MINUTE = 60_000_000
CRASH = int(datetime(2023, 8, 17, 21, 36, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("column", "events", "found_after", "dated"), [("gas_gwei", 6, 16, 2), ("liquidity", 12, 64, -38)]
)
def test_the_crash_is_found_in_a_handful_of_events(
    read_series: Read, alarms_of: Alarms, column: str, events: int, found_after: int, dated: int
) -> None:
    alarms = alarms_of(read_series(UNISWAP, column), VALUE)
    assert len(alarms) == events
    crash = alarms[-1]
    assert crash.direction == ("up" if column == "gas_gwei" else "down")
    assert (crash.detected_at - CRASH) // MINUTE == found_after
    assert (crash.change_time.est - CRASH) // MINUTE == dated
    assert crash.change_time.lo <= crash.change_time.est <= crash.change_time.hi


def test_gas_at_the_crash_went_from_tens_to_thousands(read_series: Read, alarms_of: Alarms) -> None:
    crash = alarms_of(read_series(UNISWAP, "gas_gwei"), VALUE)[-1]
    assert 40 < crash.before.median < 80
    assert 2000 < crash.after.median < 4000
    assert crash.change_time.lo <= CRASH <= crash.change_time.hi


def test_the_range_of_ticks_rises_with_the_crash(read_series: Read, alarms_of: Alarms) -> None:
    """It had begun an hour before, when 250,000 USD a minute went through the pool."""
    alarms = alarms_of(read_series(UNISWAP, "tick_range_bp"), VALUE)
    assert len(alarms) == 7
    assert alarms[-1].direction == "up"
    assert abs(alarms[-1].detected_at - CRASH) <= 15 * MINUTE


def test_returns_of_the_price_hardly_ever_drift(read_series: Read, alarms_of: Alarms) -> None:
    prices = read_series(UNISWAP, "weth_usdc_price")
    returns = [(1e4 * math.log(b / a), at) for (a, _), (b, at) in pairwise(prices)]
    assert len(alarms_of(returns, VALUE)) == 2


def test_the_five_changes_of_model_are_found_in_the_outcomes_and_nothing_else(
    read_series: Read, alarms_of: Alarms
) -> None:
    alarms = alarms_of(read_series("outcome_model_swap", "failed"), RATE)
    changes = (164, 328, 492, 1243, 1323)
    assert [alarm.direction for alarm in alarms] == ["up", "up", "down", "up", "down"]
    for alarm, change in zip(alarms, changes, strict=True):
        assert abs(alarm.change_index - change) <= 4
        assert 0 <= alarm.index - change <= 80


def test_the_failures_of_the_nab_machines_are_found(read_series: Read, alarms_of: Alarms) -> None:
    found = Counter[str]()
    for name, labels in {
        "nab_cpu_utilization_asg_misconfiguration": ["2014-07-12T02:04:00Z", "2014-07-14T21:44:00Z"],
        "nab_grok_asg_anomaly": ["2014-01-29T00:45:00Z"],
        "nab_ec2_cpu_utilization_825cc2": ["2014-04-16T03:34:00Z"],
    }.items():
        alarms = alarms_of(read_series(name, "value"), VALUE)
        for label in labels:
            at = int(datetime.fromisoformat(label).timestamp()) * 1_000_000
            found[name] += any(abs(alarm.detected_at - at) <= 3 * 60 * MINUTE for alarm in alarms)
    assert found.total() == 4
