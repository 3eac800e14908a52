"""A metric becomes its frozen rank, and the rank a normal score."""

import math
import random
from statistics import fmean, pstdev

import pytest

from fluvial.drift.transform import KNOTS, dependence_of, freeze

DICE = random.Random(3)
SAMPLE = [DICE.gauss(50, 5) for _ in range(256)]


def test_the_sample_itself_becomes_a_standard_normal_within_the_bound_of_adwin() -> None:
    reference = freeze(SAMPLE)
    units = [reference.unit(value) for value in SAMPLE]
    assert min(units) == 0.0
    assert max(units) == 1.0
    assert fmean(units) == pytest.approx(0.5, abs=0.01)
    scores = [reference.coordinate(value) for value in SAMPLE if reference.knots[0] < value < reference.knots[-1]]
    assert pstdev(scores) == pytest.approx(reference.sd, abs=0.1) == pytest.approx(0.95, abs=0.05)


def test_an_outlier_counts_no_more_than_the_largest_of_the_sample() -> None:
    reference = freeze(SAMPLE)
    assert reference.unit(1e6) == reference.unit(max(SAMPLE) + 1) == 1.0
    assert reference.unit(-1e77) == 0.0


def test_beyond_the_sample_the_coordinate_grows_slowly_and_ends() -> None:
    reference = freeze(SAMPLE)
    edge, near, far = (reference.coordinate(value) for value in (max(SAMPLE), 80.0, 1e77))
    assert edge < near < far == pytest.approx(2.42 + 3, abs=0.01)
    assert reference.coordinate(-1e77) == -far


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e18, 0.0), (1.0, 1e6), (1e18, 1e20)])
def test_units_do_not_depend_on_the_unit_of_the_metric(scale: float, shift: float) -> None:
    other = freeze([value * scale + shift for value in SAMPLE])
    reference = freeze(SAMPLE)
    for value in [*SAMPLE, 0.0, 100.0]:
        assert other.unit(value * scale + shift) == reference.unit(value)


def test_ties_share_the_middle_of_their_ranks() -> None:
    reference = freeze([0.0] * 128 + [1.0] * 128)
    assert reference.unit(0.0) == pytest.approx(1 - reference.unit(1.0))
    assert reference.unit(0.5) == 0.5
    assert 0.3 < reference.unit(0.0) < 0.4


@pytest.mark.parametrize("constant", [0.0, 7.0, 1e18, -1e77])
def test_a_constant_is_the_middle_and_anything_else_an_end(constant: float) -> None:
    reference = freeze([constant] * 256)
    assert reference.unit(constant) == 0.5
    assert reference.coordinate(constant) == 0.0
    assert reference.unit(math.nextafter(constant, math.inf)) == 1.0
    assert reference.unit(math.nextafter(constant, -math.inf)) == 0.0
    assert reference.sd == 0.25


def test_a_small_sample_is_enough() -> None:
    assert len(freeze([1.0, 2.0, 3.0]).knots) == KNOTS
    assert freeze([5.0]).unit(5.0) == 0.5


def test_dependent_values_say_less() -> None:
    white = [DICE.gauss(0, 1) for _ in range(4000)]
    assert dependence_of(white) == pytest.approx(1, abs=0.1)
    red = [0.0]
    for shock in white:
        red.append(0.8 * red[-1] + 0.6 * shock)
    assert dependence_of(red) == pytest.approx(9, abs=1)
    assert dependence_of([float(i) for i in range(4000)]) == pytest.approx(50)
    assert dependence_of([1.0, -1.0] * 100) == dependence_of([2.0] * 9) == 1.0
