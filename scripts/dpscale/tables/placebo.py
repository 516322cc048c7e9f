"""The placebo: one cell measured under two names. How far the two lie apart is what a difference must exceed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpscale.statistics import Estimate
from dpscale.trial import PLACEBO, Trial


def twin(trials: Sequence[Trial]) -> str | None:
    """The strategy that the placebo measures again; None without one."""
    placebo = next((trial for trial in trials if trial.strategy == PLACEBO), None)
    if placebo is None:
        return None
    return next(trial.strategy for trial in trials if trial != placebo and replace(trial, strategy=PLACEBO) == placebo)


def noise_floor_percent(ratio: Estimate) -> float:
    """The largest difference between the two that low and high of their ratio let in, in %."""
    return 100 * (max(ratio.high, 1 / ratio.low) - 1)
