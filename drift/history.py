"""What is remembered of a metric's values since its level began: the latest exactly, the older ones in blocks."""

from collections.abc import Callable, Sequence
from statistics import fmean, median

import msgspec
from msgspec import Struct

RECENT = 64
"""At least so many of the latest values are kept one by one."""
FOLD = 16
"""Values of the smallest block."""
PER_SIZE = 3
"""Blocks of one size; of one more, the two oldest become one of twice the size."""
LARGEST = 4_096
"""Values of the largest block; of these the oldest are forgotten, so that at most about 25,000 values count."""


class Stretch(Struct, frozen=True, array_like=True):
    """`n` values in a row, the first at `at` (milliseconds UTC): mean and median in the metric's unit.

    `coordinate` is the mean of their coordinates (drift/transform.py). The median of a merged block is the mean of the
    medians of its parts.
    """

    n: int
    at: int
    mean: float
    median: float
    coordinate: float


class History(Struct, array_like=True):
    """Oldest first: blocks, then the latest values with their times (milliseconds UTC).

    `first` is the index of the oldest value within the metric's whole stream.
    """

    first: int = 0
    blocks: list[Stretch] = []
    values: list[float] = []
    times: list[int] = []

    def append(self, value: float, at: int) -> None:
        self.values.append(value)
        self.times.append(at)

    def fold(self, coordinate: Callable[[float], float]) -> None:
        """Put what is more than enough of single values into blocks."""
        while len(self.values) >= RECENT + FOLD:
            values = self.values[:FOLD]
            mean = fmean(map(coordinate, values))
            self.blocks.append(Stretch(FOLD, self.times[0], fmean(values), median(values), mean))
            del self.values[:FOLD], self.times[:FOLD]
            self._merge()

    def _merge(self) -> None:
        size, end = FOLD, len(self.blocks)
        while True:
            start = end
            while start and self.blocks[start - 1].n == size:
                start -= 1
            if end - start <= PER_SIZE:
                return
            if size == LARGEST:
                self.first += self.blocks.pop(0).n
                return
            a, b = self.blocks[start : start + 2]
            self.blocks[start : start + 2] = [
                Stretch(
                    2 * size, a.at, (a.mean + b.mean) / 2, (a.median + b.median) / 2, (a.coordinate + b.coordinate) / 2
                )
            ]
            size, end = 2 * size, start + 1

    def see(self, coordinate: Callable[[float], float]) -> None:
        """Look at the blocks through another transform: their medians stand for their values."""
        self.blocks = [msgspec.structs.replace(block, coordinate=coordinate(block.median)) for block in self.blocks]

    def stretches(self, coordinate: Callable[[float], float]) -> list[Stretch]:
        """Everything that is remembered, a single value as a stretch of one."""
        singles = zip(self.values, self.times, strict=True)
        return self.blocks + [Stretch(1, at, value, value, coordinate(value)) for value, at in singles]

    def begin_at(self, stretch: int) -> None:
        """Forget what came before the stretch of this number."""
        self.first += count(self.blocks[:stretch])
        singles = max(0, stretch - len(self.blocks))
        self.first += singles
        del self.blocks[:stretch]
        del self.values[:singles], self.times[:singles]


def count(stretches: Sequence[Stretch]) -> int:
    """Of all values."""
    return sum(s.n for s in stretches)


def mean_of(stretches: Sequence[Stretch]) -> float:
    """Mean of all values."""
    return sum(s.n * s.mean for s in stretches) / count(stretches)


def coordinate_of(stretches: Sequence[Stretch]) -> float:
    """Mean coordinate of all values."""
    return sum(s.n * s.coordinate for s in stretches) / count(stretches)


def median_of(stretches: Sequence[Stretch]) -> float:
    """Median of all values; a block counts as so many values at its median."""
    ordered = sorted((s.median, s.n) for s in stretches)
    half = count(stretches) / 2
    seen = 0
    for number, (value, n) in enumerate(ordered):
        seen += n
        if seen == half:
            return (value + ordered[number + 1][0]) / 2
        if seen > half:
            return value
    raise ValueError("no values have no median")
