"""In which order trials run: repeat by repeat, shuffled within each."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from dpscale.trial import Trial


def measuring_order(trials: Iterable[Trial]) -> list[Trial]:
    """Repeat by repeat, so that a drift of the machine touches all cells alike, and within a repeat of an experiment in an
    order drawn from its seed, so that no cell always follows the same one."""
    repeats: dict[tuple[int, str], list[Trial]] = {}
    for trial in trials:
        repeats.setdefault((trial.repeat, trial.experiment), []).append(trial)
    ordered = []
    for (_, experiment), cells in sorted(repeats.items(), key=lambda item: item[0][0]):
        Random(f"{experiment} {cells[0].seed}").shuffle(cells)
        ordered += cells
    return ordered
