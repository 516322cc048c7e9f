"""Intervals hold the truth as often as they say, and are absent where repeats are too few."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, quantile_test

from dpscale.statistics import CONFIDENCE, estimate, median_interval, range_of, ratio

VALUES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40)


@pytest.mark.parametrize("n", range(1, 6))
def test_fewer_than_six_values_give_no_95_percent_interval(n):
    assert median_interval([float(value) for value in range(n)], CONFIDENCE) is None


@pytest.mark.parametrize(
    # tables of the sign test's interval: Conover, Practical Nonparametric Statistics; Hollander and Wolfe
    ("n", "lower", "upper"),
    [(6, 1, 6), (7, 1, 7), (8, 1, 8), (9, 2, 8), (10, 2, 9), (12, 3, 10), (15, 4, 12), (20, 6, 15), (30, 10, 21)],
)
def test_the_interval_lies_between_the_tabulated_order_statistics(n, lower, upper):
    assert median_interval(list(range(1, n + 1)), CONFIDENCE) == (lower, upper)


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.975, 0.99])
@pytest.mark.parametrize("n", range(1, 41))
def test_it_is_the_narrowest_that_the_binomial_distribution_allows(n, confidence):
    def coverage(k: int) -> float:  # of the k-th smallest to the k-th largest
        return 1 - 2 * binom.cdf(k - 1, n, 0.5)

    interval = median_interval(list(range(1, n + 1)), confidence)
    if interval is None:
        assert coverage(1) < confidence
    else:
        k = int(interval[0])
        assert coverage(k) >= confidence
        assert 2 * (k + 1) > n or coverage(k + 1) < confidence


@pytest.mark.parametrize("n", range(6, 31))
def test_it_is_scipys_interval_of_the_median(n):
    values = np.random.default_rng(n).exponential(size=n)
    theirs = quantile_test(values, p=0.5).confidence_interval(confidence_level=CONFIDENCE)
    assert median_interval(values.tolist(), CONFIDENCE) == (theirs.low, theirs.high)


@pytest.mark.parametrize("n", [6, 7, 9, 12, 17, 23, 30])
def test_the_interval_holds_the_true_median_of_a_skewed_distribution_often_enough(n):
    cells = np.random.default_rng(0).lognormal(mean=0.0, sigma=1.5, size=(4000, n))
    intervals = [median_interval(cell, CONFIDENCE) for cell in cells.tolist()]
    assert np.mean([low <= 1.0 <= high for low, high in intervals]) >= 0.94


@pytest.mark.parametrize("n", [7, 12, 20])
def test_the_interval_of_a_ratio_holds_the_true_ratio_often_enough(n):
    generator = np.random.default_rng(0)
    mine = 3.0 * generator.lognormal(sigma=0.5, size=(2000, n))
    base = generator.lognormal(sigma=0.5, size=(2000, n))
    found = [ratio(a, b) for a, b in zip(mine.tolist(), base.tolist(), strict=True)]
    assert {item.spread for item in found} == {"95 % interval"}
    assert np.mean([item.low <= 3.0 <= item.high for item in found]) >= 0.94


def test_an_estimate_is_the_median_and_says_what_its_low_and_high_are():
    few, many = estimate([5.0, 1.0, 2.0]), estimate([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert (few.value, few.low, few.high, few.spread) == (2.0, 1.0, 5.0, "range of 3")
    assert (many.value, many.low, many.high, many.spread) == (3.5, 1.0, 6.0, "95 % interval")


def test_one_value_is_no_range():
    assert (estimate([2.0]).low, estimate([2.0]).high, range_of(1)) == (2.0, 2.0, "one value")


def test_nothing_has_no_median():
    with pytest.raises(ValueError):
        estimate([])


def test_a_ratio_is_of_the_medians():
    assert ratio([8.0, 2.0, 4.0], [1.0, 2.0, 8.0]).value == 2.0


def test_a_ratio_of_few_spans_all_quotients():
    found = ratio([4.0, 5.0, 6.0], [1.0, 2.0])
    assert (found.low, found.high, found.spread) == (2.0, 6.0, "range of 2")


def test_a_ratio_needs_seven_of_each_for_an_interval():
    six, seven = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert ratio(seven, six).spread == ratio(six, seven).spread == "range of 6"
    assert ratio(seven, seven).spread == "95 % interval"


@settings(deadline=None)
@given(VALUES, VALUES)
def test_low_and_high_enclose_the_value_and_are_finite(numerators, denominators):
    for found in (estimate(numerators), ratio(numerators, denominators)):
        assert found.low <= found.value * (1 + 1e-12)
        assert found.value <= found.high * (1 + 1e-12)
        assert math.isfinite(found.low)
        assert math.isfinite(found.high)


@settings(deadline=None)
@given(VALUES)
def test_the_order_of_repeats_does_not_matter(values):
    assert estimate(values) == estimate(values[::-1])
