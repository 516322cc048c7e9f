"""Intervals hold the truth as often as they say, and are absent where repeats are too few."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, bootstrap, kendalltau, norm, quantile_test

from dpscale.statistics import (
    CONFIDENCE,
    Estimate,
    RankTest,
    differs,
    estimate,
    holm,
    median_interval,
    outliers,
    range_of,
    rank_test,
    ratio,
    repeats_needed,
    trend,
)
from dpscale.tables.drift import WARN_BELOW_P

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


# Simulations: how often intervals hold the truth

NUMBERS = range(6, 31)
CELLS = 10_000
STEPS_S = [0.2, 5.0]
NOISE_S = 0.05  # scale of the delays that are added to a step, short or long


@dataclass(frozen=True)
class Noise:
    """A skewed distribution of delays, in its own units."""

    draw: Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
    median: float


NOISES = [
    Noise(lambda generator, shape: generator.lognormal(0.0, 1.0, shape), 1.0),
    Noise(lambda generator, shape: generator.exponential(1.0, shape), math.log(2)),
    Noise(lambda generator, shape: generator.pareto(2.0, shape), math.sqrt(2) - 1),
]


def cells_of(n: int, step_s: float, seed: int, first: int = 0) -> Iterator[tuple[list[float], float]]:
    """10,000 cells of n repeats, each with its true median; their noise is each distribution's in turn."""
    generator = np.random.default_rng((n, seed, round(10 * step_s)))
    for index in range(len(NOISES)):
        noise = NOISES[(first + index) % len(NOISES)]
        count = CELLS // len(NOISES) + (index < CELLS % len(NOISES))
        truth = step_s + NOISE_S * noise.median
        for cell in (step_s + NOISE_S * noise.draw(generator, (count, n))).tolist():
            yield cell, truth


@pytest.mark.parametrize("step_s", STEPS_S)
def test_intervals_of_medians_hold_the_truth_as_often_as_they_say(step_s):
    coverage = {}
    for n in NUMBERS:
        found = [(estimate(cell), truth) for cell, truth in cells_of(n, step_s, seed=0)]
        assert {item.spread for item, _ in found} == {"95 % interval"}
        coverage[n] = np.mean([item.low <= truth <= item.high for item, truth in found])
    assert min(coverage.values()) >= 0.94, coverage
    assert np.mean(list(coverage.values())) <= 0.985, coverage


@pytest.mark.parametrize("step_s", STEPS_S)
def test_intervals_of_ratios_hold_the_truth_as_often_as_they_say(step_s):
    coverage = {}
    for n in NUMBERS:
        pairs = zip(cells_of(n, step_s, seed=1), cells_of(n, step_s, seed=2, first=1), strict=True)
        found = [(ratio(mine, other), mine_truth / other_truth) for (mine, mine_truth), (other, other_truth) in pairs]
        assert len(found) == CELLS
        coverage[n] = np.mean([item.low <= truth <= item.high for item, truth in found])
    assert min(coverage.values()) >= 0.92, coverage
    assert np.mean(list(coverage.values())) <= 0.985, coverage


@pytest.mark.parametrize("n", [6, 7, 12])
@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_placebo_differs_from_its_twin_in_at_most_5_percent_of_1000_experiments(step_s, n):
    pairs = zip(cells_of(n, step_s, seed=3), cells_of(n, step_s, seed=4), strict=True)
    verdicts = [differs(ratio(a, b), rank_test(a, b).p_value) for (a, _), (b, _) in list(pairs)[:: CELLS // 1000]]
    assert len(verdicts) == 1000
    assert sum(verdicts) <= 50


def test_a_real_difference_is_shown_although_launches_are_noisy():
    """Steps of 5.0 and of 5.1 s whose noise has half that scale: 12 launches of each tell them apart mostly."""
    cells = [cell for cell, _ in cells_of(12, 5.0, seed=5)][::100]
    slower = [[0.1 + value for value in cell] for cell, _ in cells_of(12, 5.0, seed=6)][::100]
    verdicts = [differs(ratio(a, b), rank_test(a, b).p_value) for a, b in zip(slower, cells, strict=True)]
    assert np.mean(verdicts) >= 0.75


# Estimates


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
    assert (found.low, found.high, found.spread) == (2.0, 6.0, "range of 2 and 3")


@pytest.mark.parametrize(
    ("numerators", "denominators", "spread"),
    [(1, 1, "one value"), (1, 3, "range of 1 and 3"), (3, 1, "range of 1 and 3"), (7, 2, "range of 2 and 7")],
)
def test_a_ratio_of_few_says_how_many_values_both_have(numerators: int, denominators: int, spread: str) -> None:
    mine, others = ([1.0 + i for i in range(count)] for count in (numerators, denominators))
    found = ratio(mine, others)
    assert found.spread == spread
    assert (found.low == found.high) == (spread == "one value")


def test_a_ratio_needs_six_of_each_for_an_interval():
    five, six = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert ratio(six, five).spread == ratio(five, six).spread == "range of 5 and 6"
    assert ratio(six, six).spread == "95 % interval"


def test_the_interval_of_a_ratio_is_scipys_percentile_bootstrap():
    generator = np.random.default_rng(0)
    mine, base = generator.lognormal(sigma=0.3, size=(2, 15))
    theirs = bootstrap(
        (mine, base),
        lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis),
        method="percentile",
        n_resamples=20_000,
        rng=generator,
    ).confidence_interval
    found = ratio(mine.tolist(), base.tolist())
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=0.03)


def test_the_same_repeats_have_the_same_interval_every_time():
    values = np.random.default_rng(0).exponential(size=9).tolist()
    assert ratio(values, values[::-1]) == ratio(values, values)
    assert ratio(values, values).low < 1 < ratio(values, values).high  # numerator and denominator are drawn apart


def test_a_rate_from_a_time_swaps_low_and_high():
    assert Estimate(2.0, 1.0, 4.0, "range of 3").rate_of(8.0) == Estimate(4.0, 2.0, 8.0, "range of 3")


def test_a_factor_that_would_swap_low_and_high_is_refused():
    assert Estimate(2.0, 1.0, 4.0, "range of 3").times(2.0) == Estimate(4.0, 2.0, 8.0, "range of 3")
    with pytest.raises(ValueError):
        Estimate(2.0, 1.0, 4.0, "range of 3").times(-1.0)


@given(VALUES, VALUES)
def test_low_and_high_enclose_the_value_and_are_finite(numerators, denominators):
    for found in (estimate(numerators), ratio(numerators, denominators)):
        assert found.low <= found.value * (1 + 1e-12)
        assert found.value <= found.high * (1 + 1e-12)
        assert math.isfinite(found.low)
        assert math.isfinite(found.high)


@given(VALUES)
def test_the_order_of_repeats_does_not_matter(values):
    assert estimate(values) == estimate(values[::-1])


# Rank tests


def all_orders(n: int) -> Iterator[tuple[list[float], list[float]]]:
    """Every way in which n and n launches can turn out."""
    for chosen in combinations(range(2 * n), n):
        yield [float(rank) for rank in chosen], [float(rank) for rank in range(2 * n) if rank not in chosen]


def test_p_values_are_the_share_of_all_orders_that_are_at_least_as_uneven():
    found = [rank_test(a, b) for a, b in all_orders(4)]
    for item in found:
        as_uneven = [other for other in found if abs(other.cliffs_delta) >= abs(item.cliffs_delta) - 1e-12]
        assert item.p_value == pytest.approx(len(as_uneven) / len(found))


def test_cliffs_delta_is_the_share_of_pairs_won_less_that_lost():
    assert rank_test([3.0, 4.0], [1.0, 2.0]).cliffs_delta == 1.0
    assert rank_test([1.0, 2.0], [3.0, 4.0]).cliffs_delta == -1.0
    assert rank_test([1.0, 4.0, 5.0], [2.0, 3.0]).cliffs_delta == pytest.approx((4 - 2) / 6)


def test_equal_values_do_not_differ():
    assert rank_test([2.0] * 6, [2.0] * 6) == RankTest(1.0, 0.0)


def test_holms_adjustment_is_that_of_the_textbook():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(("pairs", "needed"), [(1, 6), (23, 6), (24, 7), (85, 7), (86, 8), (321, 8), (322, 9)])
def test_so_many_repeats_can_show_a_difference_among_so_many_pairs_and_one_fewer_can_not(pairs, needed):
    def smallest_p(n: int) -> float:
        return rank_test(list(range(n)), list(range(n, 2 * n))).p_value

    assert repeats_needed(pairs) == needed
    assert pairs * smallest_p(needed) <= 1 - CONFIDENCE
    assert pairs * smallest_p(needed - 1) > 1 - CONFIDENCE or estimate([1.0] * (needed - 1)).spread.startswith("range")


@pytest.mark.parametrize(
    ("low", "high", "p_value", "shown"),
    [(1.1, 1.3, 0.01, True), (0.7, 0.9, 0.05, True), (0.9, 1.3, 0.01, False), (1.1, 1.3, 0.06, False)],
)
def test_a_difference_takes_both_the_test_and_the_interval(low, high, p_value, shown):
    assert differs(Estimate(1.0, low, high, "95 % interval"), p_value) is shown


# Outliers


def test_what_lies_beyond_tukeys_fences_is_an_outlier():
    assert outliers([10.0, 10.1, 9.9, 10.2, 30.0, 10.0]) == [False] * 4 + [True, False]


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=3))
def test_of_three_or_fewer_none_is(values):
    assert outliers(values) == [False] * len(values)


# Drift


def repeats_over_time(change_per_launch: float, cells: int = 5, repeats: int = 6, seed: int = 0):
    """Cells of different levels, interleaved: one launch a minute."""
    generator = np.random.default_rng(seed)
    launch = iter(range(cells * repeats))
    found = [[] for _ in range(cells)]
    for _ in range(repeats):
        for cell in range(cells):
            place = next(launch)
            level_s = (1 + cell) * (1 + change_per_launch * place) + 0.02 * (1 + cell) * generator.exponential()
            found[cell].append((60.0 * place, level_s))
    return found


def test_a_machine_that_slows_down_by_a_tenth_is_found_and_by_how_much():
    found = trend(repeats_over_time(0.1 / 30))
    assert found.p_value < 0.001
    assert found.change == pytest.approx(0.1, rel=0.3)


def test_one_that_gets_faster_has_a_negative_change():
    assert trend(repeats_over_time(-0.1 / 30)).change < -0.05


def test_a_steady_machine_is_rarely_said_to_drift():
    alarms = [trend(repeats_over_time(0.0, seed=seed)).p_value <= 0.01 for seed in range(500)]
    assert np.mean(alarms) <= 0.02


def test_levels_of_cells_are_no_drift():
    """Each cell was measured apart from the others in time, the slow ones last: within none anything changes."""
    assert trend([[(10.0 * cell + repeat, 1.0 + cell) for repeat in range(3)] for cell in range(5)]) is None


def test_the_test_of_one_cell_is_kendalls():
    values = np.random.default_rng(1).normal(10, 1, 12)
    found = trend([list(zip(map(float, range(12)), values.tolist(), strict=True))])
    score = sum(np.sign(values[j] - values[i]) for i in range(12) for j in range(i + 1, 12))
    variance = 12 * 11 * (2 * 12 + 5) / 18
    assert kendalltau(range(12), values).statistic == pytest.approx(score / (12 * 11 / 2))
    assert found.p_value == pytest.approx(2 * norm.sf((abs(score) - 1) / math.sqrt(variance)))


@pytest.mark.parametrize(("cells", "launches"), [(1, 6), (2, 4), (3, 4), (4, 3), (8, 3), (9, 2)])
def test_a_trend_takes_as_many_launches_as_the_documentation_says(cells: int, launches: int):
    def steady(launches: int) -> float:
        found = trend([[(cells * repeat + cell, 2.0**repeat) for repeat in range(launches)] for cell in range(cells)])
        return 1.0 if found is None else found.p_value

    assert steady(launches) <= WARN_BELOW_P < steady(launches - 1)


def test_single_launches_have_no_trend():
    assert trend([[(0.0, 1.0)], [(1.0, 2.0)]]) is None
