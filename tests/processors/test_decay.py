"""The owner's retention table and arithmetic, figure by figure."""

import pytest

from fluvial.processors.decay import DAY, base_ttl, importance
from fluvial.schemas.insight import Category


@pytest.mark.parametrize(
    ("category", "impact_bps", "days"),
    [
        ("mev_pattern", 0.0, 365),
        ("emergency", 0.0, 365),
        ("vault_strategy", 100.1, 180),
        ("vault_strategy", -150.0, 180),
        ("vault_strategy", 100.0, 90),
        ("vault_strategy", 50.0, 90),
        ("vault_strategy", 49.9, 14),
        ("slippage", 0.0, 30),
        ("slippage", 500.0, 30),
        ("route_selection", 0.0, 30),
        ("gas_timing", 0.0, 7),
        ("general", 0.0, 14),
    ],
)
def test_the_time_to_live_is_that_of_the_table(category: Category, impact_bps: float, days: int) -> None:
    assert base_ttl(category, impact_bps) == days * DAY


@pytest.mark.parametrize(
    ("impact_bps", "accesses", "expected"),
    [
        (0.0, 0, 0.0),
        (250.0, 0, 0.5),
        (-250.0, 0, 0.5),
        (0.0, 6, 0.3),
        (0.0, 100, 0.3),
        (500.0, 6, 1.0),
        (50.0, 1, 0.15),
    ],
)
def test_importance_is_impact_up_to_500_bps_and_use_up_to_three_tenths(
    impact_bps: float, accesses: int, expected: float
) -> None:
    assert importance(impact_bps, accesses) == pytest.approx(expected)
