"""The history stays small and keeps what an alarm has to tell."""

import random
from statistics import fmean, median

import pytest

from fluvial.drift.cut import bernoulli_gain, best_cut, normal_gain
from fluvial.drift.history import FOLD, LARGEST, PER_SIZE, RECENT, History, Stretch, mean_of, median_of


def same(value: float) -> float:
    return value


def filled(values: list[float]) -> History:
    history = History()
    for index, value in enumerate(values):
        history.append(value, index)
        history.fold(same)
    return history


def test_recent_values_are_exact_and_older_ones_in_blocks_of_growing_size() -> None:
    values = [float(i) for i in range(1000)]
    history = filled(values)
    assert RECENT <= len(history.values) < RECENT + FOLD
    assert history.values == values[-len(history.values) :]
    assert history.times == [int(v) for v in history.values]
    sizes = [block.n for block in history.blocks]
    assert sizes == sorted(sizes, reverse=True)
    assert all(sizes.count(size) <= PER_SIZE for size in sizes)
    start = 0
    for block in history.blocks:
        part = values[start : start + block.n]
        assert (block.at, block.mean, block.median, block.coordinate) == (start, fmean(part), median(part), fmean(part))
        start += block.n
    assert start + len(history.values) == 1000


def test_the_oldest_blocks_are_forgotten_and_the_index_goes_on() -> None:
    history = filled([1.0] * 40_000)
    assert len(history.blocks) <= 27
    assert max(block.n for block in history.blocks) == LARGEST
    assert history.first == 40_000 - sum(s.n for s in history.stretches(same)) > 0


def test_it_begins_at_any_stretch() -> None:
    values = [float(i) for i in range(500)]
    for number in range(len(filled(values).stretches(same))):
        history = filled(values)
        expected = history.stretches(same)[number:]
        history.begin_at(number)
        assert history.stretches(same) == expected
        assert history.first == expected[0].at


def test_medians_of_single_values_are_exact() -> None:
    for values in ([3.0, 1.0, 2.0], [4.0, 1.0, 2.0, 3.0], [1.0], [2.0, 2.0, 9.0, 9.0]):
        stretches = [Stretch(1, 0, value, value, value) for value in values]
        assert median_of(stretches) == median(values)
        assert mean_of(stretches) == fmean(values)
    assert median_of([Stretch(4, 0, 1.0, 1.0, 1.0), Stretch(2, 0, 9.0, 9.0, 9.0)]) == 1.0


def test_the_best_cut_is_at_the_step_and_its_interval_holds_it() -> None:
    dice = random.Random(1)
    found = 0
    for _ in range(200):
        values = [dice.gauss(float(i >= 150), 1) for i in range(210)]
        cut = best_cut([Stretch(1, i, v, v, v) for i, v in enumerate(values)], normal_gain(1.0))
        assert cut is not None
        assert abs(cut.at - 150) < 50
        found += cut.lo <= 150 <= cut.hi
    assert found >= 190


def test_the_best_cut_of_outcomes_is_where_the_rate_changed() -> None:
    outcomes = [0.0] * 100 + [1.0, 1.0, 0.0, 1.0, 1.0] * 4
    cut = best_cut([Stretch(1, i, v, v, v) for i, v in enumerate(outcomes)], bernoulli_gain)
    assert cut is not None
    assert (cut.at, cut.lo <= 100 <= cut.hi) == (100, True)


def test_a_cut_between_blocks_may_lie_anywhere_in_them() -> None:
    blocks = [Stretch(16, 16 * i, float(i >= 3), float(i >= 3), float(i >= 3)) for i in range(6)]
    cut = best_cut(blocks, normal_gain(0.1))
    assert cut is not None
    assert (cut.lo, cut.at, cut.hi) == (2, 3, 4)


@pytest.mark.parametrize("values", [[], [1.0] * 23])
def test_too_few_values_have_no_cut(values: list[float]) -> None:
    assert best_cut([Stretch(1, 0, v, v, v) for v in values], normal_gain(1.0)) is None
