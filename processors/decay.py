"""Retention by impact, not by age: the owner's table and arithmetic (Memory Architecture, section 7).

Nothing here deletes: what is pruned leaves active memory and is archived.
"""

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
_CRITICAL: Final = frozenset({"mev_pattern", "emergency"})


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


def decay_multiplier(category: Category, pnl_impact_bps: float) -> float:
    """How much slower than its base a lesson decays; exploits and emergencies as slowly as high impact."""
    impact = abs(pnl_impact_bps)
    if impact > HIGH_IMPACT_BPS or category in _CRITICAL:
        return 5.0
    return 2.0 if impact > MEDIUM_IMPACT_BPS else 1.0


def should_prune(category: Category, base_ttl_seconds: int, pnl_impact_bps: float, accesses: int, age: float) -> bool:
    """Whether a lesson of this age (seconds) leaves active memory; being used lets it live up to twice as long."""
    if base_ttl_seconds == NEVER:
        return False
    used = min(2.0, 1.0 + accesses * 0.2)
    return age > base_ttl_seconds * decay_multiplier(category, pnl_impact_bps) * used
