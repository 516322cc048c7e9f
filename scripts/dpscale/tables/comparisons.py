"""Pairs of strategies on one topology under one launcher: which is faster, as far as the launches can tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from dpscale import statistics
from dpscale.tables.cells import Speed, cells_of, measured
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
    repeats: int
    speed: Speed


def compare(timings: pd.DataFrame) -> pd.DataFrame:
    """A row for each pair of measured cells, and one for the placebo and the cell that it repeats.

    A pair's p-value is adjusted by Holm's method over all pairs; the placebo's stands alone, as no strategy is at stake.
    """
    cells = [
        Cell(rows.iloc[0].to_dict(), len(rows), Speed.of(rows))
        for rows in map(measured, cells_of(timings))
        if len(rows)
    ]
    rows = [_compared(mine, other) for mine, other in _pairs(cells)]
    tested = [row for row in rows if row["strategy"] != PLACEBO]
    for row, p_value in zip(tested, statistics.holm([row["p_value"] for row in tested]), strict=True):
        row["p_value_holm"] = p_value
    needed = statistics.repeats_needed(max(1, len(tested)))
    for row in rows:
        row |= _verdict(row, statistics.repeats_needed(1) if row["strategy"] == PLACEBO else needed)
    return frame("comparisons", [{name: value for name, value in row.items() if name != "ratio"} for row in rows])


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


def _compared(mine: Cell, other: Cell) -> dict[str, Any]:
    ratio = mine.speed.over(other.speed)
    test = statistics.rank_test(mine.speed.throughputs, other.speed.throughputs)
    return {
        **{name: mine.facts[name] for name in PLACE},
        "strategy": mine.facts["strategy"],
        "other": other.facts["strategy"],
        "repeats": mine.repeats,
        "other_repeats": other.repeats,
        "ratio": ratio,
        "throughput_ratio": ratio.value,
        "throughput_ratio_low": ratio.low,
        "throughput_ratio_high": ratio.high,
        "spread": ratio.spread,
        "cliffs_delta": test.cliffs_delta,
        "p_value": test.p_value,
        "differs_in": ", ".join(
            f"{name}: {mine.facts[name]}, there {other.facts[name]}" for name in _different(mine, other)
        ),
    }


def _different(one: Cell, two: Cell) -> list[str]:
    """In what two cells differ beside the strategy."""
    return [name for name in MAY_DIFFER if one.facts[name] != two.facts[name]]


def _verdict(row: dict[str, Any], needed: int) -> dict[str, Any]:
    if min(row["repeats"], row["other_repeats"]) < needed:
        return {"verdict": f"too few repeats: it takes {needed} of each", "repeats_needed": needed}
    ratio: statistics.Estimate = row["ratio"]
    if not statistics.differs(ratio, row.get("p_value_holm", row["p_value"])):
        verdict = "no difference shown"
    elif row["strategy"] == PLACEBO:
        verdict = DIFFERS
    else:
        verdict = "faster" if ratio.value > 1 else "slower"
    return {"verdict": verdict, "repeats_needed": needed}
