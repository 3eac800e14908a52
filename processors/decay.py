"""Retention by impact, not by age: the owner's table and arithmetic (Memory Architecture, section 7)."""

from typing import Final

from fluvial.schemas.insight import Category

DAY: Final = 86_400
NEVER: Final = 0
"""Time to live of what does not decay: an operator's directive."""

HIGH_IMPACT_BPS: Final = 100.0
MEDIUM_IMPACT_BPS: Final = 50.0

_BY_CATEGORY: Final[dict[Category, int]] = {
    "mev_pattern": 365 * DAY,
    "emergency": 365 * DAY,
    "slippage": 30 * DAY,
    "route_selection": 30 * DAY,
    "gas_timing": 7 * DAY,
    "operator_directive": NEVER,
}


def base_ttl(category: Category, pnl_impact_bps: float = 0.0) -> int:
    """Seconds that a lesson of this category lives by itself; strategy and general lessons by their impact."""
    if category in _BY_CATEGORY:
        return _BY_CATEGORY[category]
    impact = abs(pnl_impact_bps)
    if impact > HIGH_IMPACT_BPS:
        return 180 * DAY
    return 90 * DAY if impact >= MEDIUM_IMPACT_BPS else 14 * DAY


def importance(pnl_impact_bps: float, accesses: int) -> float:
    """0 to 1: |P&L impact| counts up to 500 bps, being used up to .3.

    >>> importance(-250.0, accesses=2)
    0.6
    """
    return min(1.0, abs(pnl_impact_bps) / 500.0 + min(0.3, accesses * 0.05))
