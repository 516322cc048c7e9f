"""The placebo: one cell measured under two names. How far the two lie apart is what a difference must exceed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpscale.trial import PLACEBO, Trial

if TYPE_CHECKING:
    import pandas as pd

DIFFERS = "differs, which it must not"  # verdict


@dataclass(frozen=True)
class Placebo:
    """What a measured placebo says of its experiment."""

    noise_floor_percent: float  # the largest difference between the two that low and high of their ratio let in
    warning: str | None


def twin(trials: Sequence[Trial]) -> str | None:
    """The strategy that the placebo measures again; None without one."""
    placebo = next((trial for trial in trials if trial.strategy == PLACEBO), None)
    if placebo is None:
        return None
    return next(trial.strategy for trial in trials if trial != placebo and replace(trial, strategy=PLACEBO) == placebo)


def placebo_of(comparisons: pd.DataFrame) -> Placebo | None:
    """From its row of the comparisons, where both of the pair were measured."""
    rows = comparisons[comparisons.strategy == PLACEBO]
    if rows.empty:
        return None
    pair = rows.iloc[0]
    floor = 100 * (max(pair.throughput_ratio_high, 1 / pair.throughput_ratio_low) - 1)
    warning = "the placebo differs from its twin: launches are less alike than intervals and tests assume"
    return Placebo(floor, warning if pair.verdict == DIFFERS else None)
