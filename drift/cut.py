"""Where a series changed: the cut into two parts that is most likely."""

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from fluvial.drift.history import Stretch, count

SHORTEST = 12
"""Values on either side of a cut: what is over sooner is an outlier, no level."""
_LIKELIHOOD_DROP = 3.0
"""A cut whose log likelihood is lower by no more than this may be the true one: about 95 % on a step of 1 sigma."""

Gain = Callable[[float, float, float, float], float]
"""Log likelihood that a change adds: of (n, mean) before and (n, mean) after."""


class Cut(Struct, frozen=True):
    """The part after the cut begins with stretch `at`; it may as well have begun anywhere from `lo` to `hi`."""

    at: int
    lo: int
    hi: int


def normal_gain(variance: float) -> Gain:
    """For coordinates that vary so much around their level."""
    return lambda n0, m0, n1, m1: n0 * n1 / (n0 + n1) * (m1 - m0) ** 2 / (2 * variance)


def bernoulli_gain(n0: float, p0: float, n1: float, p1: float) -> float:
    """For zeros and ones."""
    pooled = (n0 * p0 + n1 * p1) / (n0 + n1)
    return _log_likelihood(n0, p0) + _log_likelihood(n1, p1) - _log_likelihood(n0 + n1, pooled)


def _log_likelihood(n: float, p: float) -> float:
    return n * (p * math.log(p) + (1 - p) * math.log(1 - p)) if 0 < p < 1 else 0.0


def best_cut(stretches: Sequence[Stretch], gain: Gain, start: int = 0) -> Cut | None:
    """The most likely single change of the mean coordinate in `stretches[start:]`; None where they are too few."""
    total = count(stretches[start:])
    rest = sum(s.n * s.coordinate for s in stretches[start:])
    gains: list[tuple[float, int]] = []
    n, passed = 0, 0.0
    for number in range(start, len(stretches) - 1):
        stretch = stretches[number]
        n += stretch.n
        passed += stretch.n * stretch.coordinate
        rest -= stretch.n * stretch.coordinate
        if n >= SHORTEST and total - n >= SHORTEST:
            gains.append((gain(n, passed / n, total - n, rest / (total - n)), number + 1))
    if not gains:
        return None
    most, at = max(gains, key=lambda found: (found[0], -found[1]))
    close = [number for found, number in gains if most - found <= _LIKELIHOOD_DROP]
    # Within a block nothing can be told: the change may have been anywhere in the blocks on both sides of the cut.
    lo, hi = close[0], close[-1]
    return Cut(at, lo - 1 if stretches[lo - 1].n > 1 else lo, hi + 1 if stretches[hi].n > 1 else hi)
