"""Pairs of strategies on one topology under one launcher: which is faster, as far as the launches can tell."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any

from dpscale import statistics
from dpscale.tables.cells import cells_of, floats, measured, throughput_ratio
from dpscale.tables.placebo import DIFFERS
from dpscale.tables.schema import frame
from dpscale.trial import PLACEBO

if TYPE_CHECKING:
    import pandas as pd

PLACE = ["experiment", "launcher", "nodes", "devices_per_node", "devices"]
MAY_DIFFER = ["precision", "compile", "channels_last", "global_batch_size", "effective_precision"]


def compare(timings: pd.DataFrame) -> pd.DataFrame:
    """A row for each pair of measured cells, and one for the placebo and the cell that it repeats.

    A pair's p-value is adjusted by Holm's method over all pairs; the placebo's stands alone, as no strategy is at stake.
    """
    cells = [cell for cell in map(measured, cells_of(timings)) if len(cell)]
    rows = [_compared(mine, other) for mine, other in _pairs(cells)]
    tested = [row for row in rows if row["strategy"] != PLACEBO]
    for row, p_value in zip(tested, statistics.holm([row["p_value"] for row in tested]), strict=True):
        row["p_value_holm"] = p_value
    needed = statistics.repeats_needed(max(1, len(tested)))
    for row in rows:
        row |= _verdict(row, statistics.repeats_needed(1) if row["strategy"] == PLACEBO else needed)
    return frame("comparisons", [{name: value for name, value in row.items() if name != "ratio"} for row in rows])


def _pairs(cells: list[pd.DataFrame]) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """(later in the plan, earlier) of every two that ran in the same place; the placebo meets its twin alone."""
    for earlier, later in combinations(cells, 2):
        one, two = earlier.iloc[0], later.iloc[0]
        if any(one[name] != two[name] for name in PLACE):
            continue
        if PLACEBO not in (one.strategy, two.strategy) or two.placebo_of == one.strategy:
            yield later, earlier


def _compared(mine: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    one, two = mine.iloc[0], other.iloc[0]
    ratio = throughput_ratio(mine, other)
    test = statistics.rank_test(*(floats(cell, "throughput_samples_per_s") for cell in (mine, other)))
    return {
        **{name: one[name] for name in PLACE},
        "strategy": one.strategy,
        "other": two.strategy,
        "repeats": len(mine),
        "other_repeats": len(other),
        "ratio": ratio,
        "throughput_ratio": ratio.value,
        "throughput_ratio_low": ratio.low,
        "throughput_ratio_high": ratio.high,
        "spread": ratio.spread,
        "cliffs_delta": test.cliffs_delta,
        "p_value": test.p_value,
        "differs_in": ", ".join(f"{name}: {one[name]}, there {two[name]}" for name in _different(one, two)),
    }


def _different(one: pd.Series, two: pd.Series) -> list[str]:
    """In what two cells differ beside the strategy; both may lack a batch that a search is yet to find."""
    return [name for name in MAY_DIFFER if str(one[name]) != str(two[name])]


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
