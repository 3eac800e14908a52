"""Exact comparison of two rates whose calls come in units (runs, tasks) that are not independent inside.

Each unit gives its mean outcome once to a side, so that a run of fifty calls weighs no more than a run of one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Z = 1.645
"""Of two-sided 90 % intervals."""


@dataclass(frozen=True)
class Units:
    """Rows grouped: `order` sorts them by unit, `starts` are the first of each unit in that order."""

    order: Ints
    starts: Ints

    @classmethod
    def of(cls, names: Sequence[str]) -> "Units":
        codes = np.unique(np.asarray(names, dtype=object).astype(str), return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        return cls(order, np.flatnonzero(np.diff(codes[order], prepend=-1)))

    def sides(self, masks: Bools, failed: Bools) -> list["Sides"]:
        """For each mask (A x N): the units inside and outside it, with their mean failures."""
        inside, outside = self._means(masks, failed), self._means(~masks, failed)
        return [Sides(*map(float, numbers)) for numbers in zip(*inside, *outside, strict=True)]

    def _means(self, masks: Bools, failed: Bools) -> tuple[Floats, Floats]:
        chosen = masks[:, self.order]
        calls = np.add.reduceat(chosen, self.starts, axis=1, dtype=np.int32)
        failures = np.add.reduceat(chosen & failed[self.order], self.starts, axis=1, dtype=np.int32)
        return (calls > 0).sum(axis=1).astype(float), (failures / np.maximum(calls, 1)).sum(axis=1)


@dataclass(frozen=True)
class Sides:
    """How many units have calls inside and outside, and the sums of their mean outcomes (0 to 1 each)."""

    inside: float
    inside_sum: float
    outside: float
    outside_sum: float

    def complement(self) -> "Sides":
        """The same for the opposite outcome."""
        return Sides(self.inside, self.inside - self.inside_sum, self.outside, self.outside - self.outside_sum)

    @property
    def rate(self) -> float:
        return self.inside_sum / self.inside

    @property
    def outside_rate(self) -> float:
        return self.outside_sum / self.outside

    @property
    def least_difference(self) -> float:
        """Lower bound of the difference of the rates (Newcombe's from Wilson's intervals)."""
        low, _ = wilson(self.inside_sum, self.inside)
        _, high = wilson(self.outside_sum, self.outside)
        return self.rate - self.outside_rate - math.hypot(self.rate - low, high - self.outside_rate)


def wilson(k: float, n: float) -> tuple[float, float]:
    """Wilson's 90 % interval of a rate, k of n.

    >>> [round(bound, 3) for bound in wilson(20, 20)]
    [0.881, 1.0]
    """
    centre = (k + Z * Z / 2) / (n + Z * Z)
    half = Z / (n + Z * Z) * math.sqrt(max(0.0, k * (n - k) / n) + Z * Z / 4)
    return max(0.0, centre - half), min(1.0, centre + half)


def fisher(sides: Sides) -> float:
    """Fisher's exact p that the outcome is more frequent inside, doubled since either side might have been asked for.

    Fractional sums of unit means are rounded towards no difference.
    """
    n, m = round(sides.inside), round(sides.outside)
    k, other = math.floor(sides.inside_sum + 1e-9), math.ceil(sides.outside_sum - 1e-9)
    both = k + other
    ks = np.arange(max(k, both - m), min(n, both) + 1)
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + m + 1)))))
    ways = logs[n] - logs[ks] - logs[n - ks] + logs[m] - logs[both - ks] - logs[m - both + ks]
    return float(min(1.0, 2 * np.exp(ways - (logs[n + m] - logs[both] - logs[n + m - both])).sum()))
