"""Intervals of medians and of their ratios: nonparametric, and absent where too few repeats can't give one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A median and how far it can be trusted. `spread` says what low and high are."""

    value: float
    low: float
    high: float
    spread: str


def estimate(values: Sequence[float]) -> Estimate:
    """Median of repeats, with its 95 % interval from 6 values on and their range below. Raises ValueError if empty."""
    interval = median_interval(values, CONFIDENCE)
    if interval is not None:
        return Estimate(median(values), *interval, "95 % interval")
    return Estimate(median(values), min(values), max(values), range_of(len(values)))


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """Ratio of two medians of independent repeats.

    Its 95 % interval joins the 97.5 % intervals of both medians (Bonferroni: both hold at once in at least 95 % of
    cases), which needs 7 repeats of each; with fewer, the range of all quotients.
    """
    value = median(numerators) / median(denominators)
    half = 1 - (1 - CONFIDENCE) / 2
    upper, lower = median_interval(numerators, half), median_interval(denominators, half)
    if upper is not None and lower is not None:
        return Estimate(value, upper[0] / lower[1], upper[1] / lower[0], "95 % interval")
    fewest = min(len(numerators), len(denominators))
    return Estimate(value, min(numerators) / max(denominators), max(numerators) / min(denominators), range_of(fewest))


def median_interval(values: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """The interval between two order statistics that holds the true median with at least this confidence.

    The number of values below the median is binomial(n, 1/2), whatever the distribution (Conover, Practical
    Nonparametric Statistics, 3rd ed., section 3.2). None if not even the range is wide enough.
    """
    n = len(values)
    outside = 0.0  # probability that the true median lies below the k-th smallest, or above the k-th largest
    k = 0
    while k < n // 2 and 2 * (outside + math.comb(n, k) / 2**n) <= 1 - confidence:
        outside += math.comb(n, k) / 2**n
        k += 1
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def range_of(n: int) -> str:
    return f"range of {n}" if n > 1 else "one value"
