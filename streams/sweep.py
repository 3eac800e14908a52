"""When a hop looks for what to forget."""

from fluvial.schemas.tick import Tick
from fluvial.streams.turn import Turn

SWEEP = 3_600 * 1_000_000
"""Once in so many microseconds of tick time."""


def sweep_is_due(turn: Turn, tick: Tick, keys: int, kept: int) -> bool:
    """Whether this tick is the time: an hour after the last, or at once where `keys` are more than twice those kept."""
    swept = turn.table("swept", int)
    if tick.at - swept.get("", 0) < SWEEP and keys <= 2 * kept:
        return False
    swept[""] = tick.at
    return True
