"""The learning rate of each step: pure arithmetic, so that it is the same on every rank and under every strategy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dpscale.trial import Trial

DEFAULT_GAMMA = 0.1


def learning_rates(trial: Trial, steps_per_epoch: int) -> Callable[[int], float] | None:
    """Step, from 0 -> its learning rate; None: all have the optimiser's own, and nothing is to be done."""
    schedule = trial.optimizer.get("schedule") or {}
    if schedule.get("kind", "constant") == "constant" and not schedule.get("warmup_epochs"):
        return None
    peak = trial.learning_rate
    assert peak is not None, f"{trial.id} has no batch yet"
    num_steps = trial.steps if trial.epochs is None else trial.epochs * steps_per_epoch
    assert num_steps is not None  # a trial has one of both
    return lambda step: peak * factor(schedule, step, steps_per_epoch, num_steps)


def factor(schedule: Mapping[str, Any], step: int, steps_per_epoch: int, num_steps: int) -> float:
    """The learning rate of a step over the highest one.

    It rises linearly and is at its highest with the last step of the warm-up (Goyal et al., "Accurate, large minibatch
    SGD", 2017). Then `cosine` falls to 0 at the end of the training (Loshchilov and Hutter, "SGDR", 2017, without its
    restarts), and `step` multiplies by gamma at each milestone.
    """
    warmup_steps = round(schedule["warmup_epochs"] * steps_per_epoch)
    risen = min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
    match schedule["kind"]:
        case "cosine":
            passed = max(0, step - warmup_steps) / max(1, num_steps - warmup_steps)
            return risen * (1 + math.cos(math.pi * passed)) / 2
        case "step":
            milestones = sum(step >= round(epoch * steps_per_epoch) for epoch in schedule["milestones"])
            return float(risen * (schedule["gamma"] or DEFAULT_GAMMA) ** milestones)
    return risen
