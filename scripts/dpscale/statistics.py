"""How far measured numbers can be trusted: intervals of medians and their ratios, rank tests, outliers, drift.

Nothing assumes a distribution: times are skewed, as delays only add. Where repeats are too few, an answer is absent and
says how many it takes. docs/statistics.md has the methods and how often they are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from statistics import median

import numpy as np

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE
RESAMPLES = 1000  # of a bootstrap; the same ones every time, so that the same data give the same interval
EXACT_UP_TO = 50  # values; many more would take seconds
FENCE = 1.5  # in interquartile ranges (Tukey, Exploratory Data Analysis, 1977)


@dataclass(frozen=True)
class Estimate:
    """A median and how far it can be trusted. `spread` says what low and high are."""

    value: float
    low: float
    high: float
    spread: str

    def times(self, factor: float) -> Estimate:
        """In other units. Raises ValueError unless factor > 0."""
        if not factor > 0:
            raise ValueError(f"factor {factor} is not positive")
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.spread)

    def rate_of(self, amount: float) -> Estimate:
        """Of a time: amount per time, so that rate x time = amount holds of medians, too."""
        return Estimate(amount / self.value, amount / self.high, amount / self.low, self.spread)


@dataclass(frozen=True)
class RankTest:
    """Whether one sample tends to larger values than another."""

    p_value: float  # two-sided
    cliffs_delta: float  # share of pairs in which the first is larger, less the share in which it is smaller


@dataclass(frozen=True)
class Trend:
    """A change over time that repeats of the same thing share."""

    p_value: float
    change: float  # from the first measurement to the last, as a share: 0.05 = grown by 5 %


def estimate(values: Sequence[float]) -> Estimate:
    """Median of repeats, with its 95 % interval from 6 values on and their range below. Raises ValueError if empty."""
    interval = median_interval(values, CONFIDENCE)
    if interval is not None:
        return Estimate(median(values), *interval, "95 % interval")
    return Estimate(median(values), min(values), max(values), range_of(len(values)))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """Ratio of two medians of independent repeats.

    With 6 repeats of each its 95 % interval is the percentile bootstrap's (Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, chapter 13): the ratios of the medians of samples drawn from the repeats, without the 2.5 % at either
    end. With fewer, the range of all quotients, `range of 1 and 3` where there is one value of the one and three of the other.
    """
    value = median(numerators) / median(denominators)
    counts = len(numerators), len(denominators)
    if _order(min(counts), CONFIDENCE) == 0:
        low, high = min(numerators) / max(denominators), max(numerators) / min(denominators)
        return Estimate(value, low, high, range_of(*counts))
    resampled = np.sort(_resampled_medians(numerators, stream=0) / _resampled_medians(denominators, stream=1))
    cut = round(RESAMPLES * ALPHA / 2)
    return Estimate(value, float(resampled[cut]), float(resampled[-1 - cut]), "95 % interval")


def _resampled_medians(values: Sequence[float], stream: int) -> np.ndarray:
    """Medians of RESAMPLES samples with replacement; those of two streams are independent."""
    lower, upper = _middle_of_resamples(len(values), stream)
    ordered = np.sort(values)
    return (ordered[lower] + ordered[upper]) / 2


@cache
def _middle_of_resamples(n: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of n sorted values are the middle two (or twice the middle one) of each resample: of no data, so drawn once."""
    drawn = np.sort(np.random.default_rng((n, stream)).integers(n, size=(RESAMPLES, n)), axis=1)
    return drawn[:, (n - 1) // 2], drawn[:, n // 2]


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """The interval between two order statistics that holds the true median with at least this confidence.

    The number of values below the median is binomial(n, 1/2), whatever the distribution (Conover, Practical
    Nonparametric Statistics, 3rd ed., section 3.2). None if not even the range is wide enough.
    """
    k = _order(len(values), confidence)
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[len(values) - k]


@cache
def _order(n: int, confidence: float) -> int:
    """The interval runs from the k-th smallest of n to the k-th largest: the largest such k; 0 if there is none."""
    outside = 0.0  # probability that the true median lies below the k-th smallest, or above the k-th largest
    k = 0
    while k < n // 2 and 2 * (outside + math.comb(n, k) / 2**n) <= 1 - confidence:
        outside += math.comb(n, k) / 2**n
        k += 1
    return k


def range_of(*counts: int) -> str:
    """What low and high of so many values are; or of the ratios of so many to so many, whichever is above the line."""
    if max(counts) == 1:
        return "one value"
    return f"range of {' and '.join(map(str, sorted({*counts})))}"


def rank_test(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Mann and Whitney's test, and Cliff's delta as the size of the effect.

    Its p-value is exact, but for equal values and very many, where it is by the normal approximation: that one can't get
    as small as the correction for many pairs asks for.
    """
    from scipy.stats import mannwhitneyu

    ties = len({*first, *second}) < len(first) + len(second)
    exact = not ties and max(len(first), len(second)) <= EXACT_UP_TO
    found = mannwhitneyu(first, second, method="exact" if exact else "asymptotic")
    delta = 2 * float(found.statistic) / (len(first) * len(second)) - 1
    p = float(found.pvalue)
    return RankTest(1.0 if math.isnan(p) else p, delta)  # nan: all values are the same


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, so that all at most alpha are wrong together with at most that probability (Holm, 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for done, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - done) * p_values[index]))
        adjusted[index] = largest
    return adjusted


@cache
def repeats_needed(pairs: int) -> int:
    """Repeats of each from which on a difference can be shown among so many pairs: an interval exists, and samples that
    do not overlap at all have a small enough p-value, 2 / binomial(2k, k), times the number of pairs."""
    k = 1
    while _order(k, CONFIDENCE) == 0 or 2 * pairs / math.comb(2 * k, k) > ALPHA:
        k += 1
    return k


def differs(ratio: Estimate, p_value: float) -> bool:
    """Whether a difference is shown: the (adjusted) test and the interval of the ratio must both say so."""
    return p_value <= ALPHA and not ratio.low <= 1 <= ratio.high


def outliers(values: Sequence[float]) -> list[bool]:
    """Which values lie beyond Tukey's fences: 1.5 interquartile ranges outside the quartiles; of 3 or fewer none can."""
    lower, upper = np.quantile(values, [0.25, 0.75])
    reach = FENCE * (upper - lower)
    return [not lower - reach <= value <= upper + reach for value in values]


def trend(cells: Sequence[Sequence[tuple[float, float]]]) -> Trend | None:
    """A trend over time that repeats share: Kendall's test, summed over cells that each have a level of their own.

    Args:
        cells: (time, value > 0) of each repeat of each cell.

    Returns:
        The seasonal Kendall test and slope of Hirsch, Slack and Smith (Water Resources Research 18, 1982), whose seasons
        are our cells, on logarithms; None where no cell has two repeats.
    """
    score, variance = 0, 0.0
    slopes: list[float] = []
    for cell in cells:
        for (start, before), (end, after) in combinations(sorted(cell), 2):
            score += (after > before) - (after < before)
            slopes += [math.log(after / before) / (end - start)] if end > start else []
        variance += _kendall_variance([value for _, value in cell])
    if variance == 0 or not slopes:
        return None
    z = max(0, abs(score) - 1) / math.sqrt(variance)  # less 1, as scores are whole numbers
    times = [time for cell in cells if len(cell) > 1 for time, _ in cell]
    return Trend(math.erfc(z / math.sqrt(2)), math.expm1(median(slopes) * (max(times) - min(times))))


def _kendall_variance(values: Sequence[float]) -> float:
    """Of Kendall's score, were the order of these values a matter of chance; equal values have none among them."""

    def of(n: int) -> float:
        return n * (n - 1) * (2 * n + 5) / 18

    return of(len(values)) - sum(of(values.count(value)) for value in set(values))
