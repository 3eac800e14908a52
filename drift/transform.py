"""The transform before the detector: frozen rank -> normal score.

ADWIN's bound is for values in [0, 1], and one outlier in a metric's own unit hides every later shift. So a metric is
ranked within a sample of its own past that is frozen, and the rank is read as a quantile of the normal distribution:
the result has the same scale for every unit, and an outlier is worth no more than the largest value of the sample.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist, fmean, pstdev

from msgspec import Struct

KNOTS = 64
"""Order statistics that are kept of the sample."""

_UPPER = [NormalDist().inv_cdf((position / 2 + 0.5) / (KNOTS + 1)) for position in range(KNOTS + 1, 2 * KNOTS + 1)]
_SCORES = (*(-score for score in reversed(_UPPER)), 0.0, *_UPPER)
"""Normal score of a value by twice its rank among the knots."""
_UNITS = tuple((score / _SCORES[-1] + 1) / 2 for score in _SCORES)
_SMALLEST_SD = 0.25
"""Of the scores, for a sample (nearly) without spread: the step off a constant is then about 10 sigma."""
_LARGEST_EXCESS = 3.0
_LARGEST_DEPENDENCE = 50.0


class Reference(Struct, frozen=True, array_like=True):
    """What a metric was like when it was frozen: KNOTS order statistics, ascending, in the metric's unit.

    `sd` is the standard deviation of the sample's scores (about 1; less with many ties), `dependence` how many of its
    values say as much as one independent value would (`dependence_of`).
    """

    knots: tuple[float, ...]
    sd: float
    dependence: float

    def unit(self, value: float) -> float:
        """The normal score scaled to [0, 1], as ADWIN's bound requires. A tie has the middle of its ranks."""
        return _UNITS[bisect_left(self.knots, value) + bisect_right(self.knots, value)]

    def coordinate(self, value: float) -> float:
        """The normal score, which beyond the sample's range goes on growing as a logarithm, by at most 3.

        Scores tell whether there was a change, and are the same for all values out of range; this also tells a value
        just out of range from one far out, and so when the change happened.
        """
        knots = self.knots
        score = _SCORES[bisect_left(knots, value) + bisect_right(knots, value)]
        low, high = knots[0], knots[-1]
        if low <= value <= high or low == high:
            return score
        beyond = (value - high if value > high else low - value) / (high - low)
        return math.copysign(abs(score) + min(math.log1p(beyond), _LARGEST_EXCESS), value - low)


def freeze(sample: Sequence[float]) -> Reference:
    """The reference of a sample of finite values in the order in which they came; at least one."""
    ordered = sorted(sample)
    knots = tuple(ordered[int((k + 0.5) * len(ordered) / KNOTS)] for k in range(KNOTS))
    scores = [_SCORES[bisect_left(knots, value) + bisect_right(knots, value)] for value in sample]
    return Reference(knots, max(pstdev(scores), _SMALLEST_SD), dependence_of(scores))


def dependence_of(values: Sequence[float]) -> float:
    """How many values of this series say as much about its mean as one independent value: (1 + r) / (1 - r).

    r is the autocorrelation at lag 1, as if the series were AR(1); the result lies within [1, 50].
    """
    mean = fmean(values)
    centred = [value - mean for value in values]
    variance = sum(d * d for d in centred)
    if variance == 0:
        return 1.0
    r = sum(a * b for a, b in pairwise(centred)) / variance
    limit = (_LARGEST_DEPENDENCE - 1) / (_LARGEST_DEPENDENCE + 1)
    r = min(max(r, 0.0), limit)
    return (1 + r) / (1 - r)
