import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from fluvial.processors.exact import Sides, Units, fisher, wilson

counts = st.integers(0, 60)


@given(counts, counts, counts, counts)
def test_fisher_is_twice_the_one_sided_exact_test(a: int, b: int, c: int, d: int) -> None:
    p = fisher(Sides(a + b, a, c + d, c))
    expected = fisher_exact([[a, b], [c, d]], alternative="greater").pvalue
    assert p == pytest.approx(min(1.0, 2 * expected), rel=1e-9)


def test_fractions_are_rounded_towards_no_difference() -> None:
    assert fisher(Sides(10, 7.9, 10, 2.1)) == fisher(Sides(10, 7, 10, 3))


def test_wilson_has_its_textbook_values() -> None:
    assert wilson(20, 20) == pytest.approx((0.8808, 1.0), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2693, 0.7307), abs=1e-4)


def test_a_unit_counts_once_a_side_whatever_its_calls() -> None:
    runs = ["a"] * 50 + ["b", "c", "c"]
    failed = np.array([True] * 50 + [False, True, False])
    inside = np.array([True] * 50 + [False, True, False])
    (sides,) = Units.of(runs).sides(inside[None, :], failed)
    assert (sides.inside, sides.inside_sum, sides.outside, sides.outside_sum) == (2.0, 2.0, 2.0, 0.0)
    assert (sides.rate, sides.outside_rate) == (1.0, 0.0)


def test_the_least_difference_is_the_lower_bound_of_newcombe() -> None:
    # Newcombe 1998, table II (a), method 10 at 90 %: 56/70 against 48/80
    assert Sides(70, 56, 80, 48).least_difference == pytest.approx(0.0763, abs=2e-3)
