"""Pairs of strategies on one topology under one launcher: which is faster, as far as the launches can tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from dpscale import statistics
from dpscale.tables.cells import FASTER, SLOWER, Speed, Versus, cells_of, judgements, measured
from dpscale.tables.placebo import DIFFERS
from dpscale.tables.schema import frame
from dpscale.trial import PLACEBO

if TYPE_CHECKING:
    import pandas as pd

PLACE = ["experiment", "launcher", "nodes", "devices_per_node", "devices"]
MAY_DIFFER = ["precision", "compile", "channels_last", "global_batch_size", "effective_precision"]


@dataclass(frozen=True)
class Cell:
    """A measured cell."""

    facts: dict[Any, Any]  # its first row, by column
    speed: Speed


def compare(timings: pd.DataFrame) -> pd.DataFrame:
    """A row for each pair of measured cells, and one for the placebo and the cell that it repeats.

    A pair's p-value is adjusted by Holm's method over all pairs that have enough launches; the placebo's stands alone, as no strategy is at stake.
    """
    cells = [Cell(rows.iloc[0].to_dict(), Speed.of(rows)) for rows in map(measured, cells_of(timings)) if len(rows)]
    pairs = [(mine, other, Versus.of(mine.speed, other.speed)) for mine, other in _pairs(cells)]
    judged = iter(judgements([versus for mine, _, versus in pairs if mine.facts["strategy"] != PLACEBO]))
    rows = [
        _facts(mine, other) | (_on_placebo(versus) if mine.facts["strategy"] == PLACEBO else next(judged))
        for mine, other, versus in pairs
    ]
    return frame("comparisons", rows)


def _pairs(cells: list[Cell]) -> Iterator[tuple[Cell, Cell]]:
    """(later in the plan, earlier) of every two that ran in the same place; the placebo meets its twin alone."""
    places: dict[tuple, list[Cell]] = {}
    for cell in cells:
        places.setdefault(tuple(cell.facts[name] for name in PLACE), []).append(cell)
    for together in places.values():
        for earlier, later in combinations(together, 2):
            one, two = earlier.facts["strategy"], later.facts["strategy"]
            if PLACEBO not in (one, two) or later.facts["placebo_of"] == one:
                yield later, earlier


def _facts(mine: Cell, other: Cell) -> dict[str, Any]:
    return {
        **{name: mine.facts[name] for name in PLACE},
        "strategy": mine.facts["strategy"],
        "other": other.facts["strategy"],
        "repeats": len(mine.speed.epoch_times_s),
        "other_repeats": len(other.speed.epoch_times_s),
        "differs_in": ", ".join(
            f"{name}: {mine.facts[name]}, there {other.facts[name]}" for name in _different(mine, other)
        ),
    }


def _different(one: Cell, two: Cell) -> list[str]:
    """In what two cells differ beside the strategy."""
    return [name for name in MAY_DIFFER if one.facts[name] != two.facts[name]]


def _on_placebo(versus: Versus) -> dict[str, Any]:
    needed = statistics.repeats_needed(1)
    verdict = versus.verdict(versus.test.p_value, needed)
    said = DIFFERS if verdict in (FASTER, SLOWER) else verdict
    return versus.columns | {"verdict": said, "repeats_needed": needed}
