"""What must hold on every row, whatever was measured. A row that contradicts itself is refused by the name of the rule:
its record is damaged or dpscale is wrong, and none of its numbers can be trusted.

Not here, as they may well be above 1: scaling efficiency (a share of the samples may fit a cache that all did not), and
utilisation on a CPU (helper threads of loaders and of gloo count, but are not allotted).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpscale.errors import UserError
from dpscale.tables.cells import CELL_KEY, name_of
from dpscale.tables.schema.cells import AMOUNTS, ESTIMATED, RATES

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 1e-9  # of floating point, relative
SHARES = {"final_accuracy": 1.0, "final_top5_accuracy": 1.0, "others_cpu_percent": 100.0}  # column -> all of it


@dataclass(frozen=True)
class Rule:
    columns: tuple[str, ...]  # that it is about, and that a refusal shows
    holds: Callable[[pd.DataFrame], np.ndarray]  # for each row; where a column is empty it counts as held


def _numbers(rows: pd.DataFrame, column: str) -> np.ndarray:
    return rows[column].to_numpy(dtype=float, na_value=np.nan)


def _equal(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    return ~(np.abs(one - two) > TOLERANCE * np.abs(two))


def _product(one: str, two: str, whole: str) -> Rule:
    return Rule(
        (one, two, whole),
        lambda rows: _equal(_numbers(rows, one) * _numbers(rows, two), _numbers(rows, whole)),
    )


def _at_most(column: str, most: float) -> Rule:
    def holds(rows: pd.DataFrame) -> np.ndarray:
        share = _numbers(rows, column)
        return ~((share < 0) | (share > most))

    return Rule((column,), holds)


def _at_most_on_cuda(column: str, most: float) -> Rule:
    within = _at_most(column, most)
    return Rule(within.columns, lambda rows: within.holds(rows) | (rows.device != "cuda").to_numpy())


def _ordered(column: str) -> Rule:
    columns = (f"{column}_low", column, f"{column}_high")

    def holds(rows: pd.DataFrame) -> np.ndarray:
        low, value, high = (_numbers(rows, name) for name in columns)
        slack = TOLERANCE * np.abs(value)
        return ~((low > value + slack) | (value > high + slack))

    return Rule(columns, holds)


def _same_in_a_cell(column: str) -> Rule:
    def holds(rows: pd.DataFrame) -> np.ndarray:
        of_cell = rows.groupby(CELL_KEY)[column].transform("first")
        return _equal(_numbers(rows, column), of_cell.to_numpy(dtype=float, na_value=np.nan))

    return Rule((column,), holds)


ON_EVERY_ROW = {
    "rate per device x N = total rate": _product(
        "throughput_per_device_samples_per_s", "devices", "throughput_samples_per_s"
    ),
    "no share above all: utilization_percent": _at_most_on_cuda("utilization_percent", 100.0),
    **{f"rate x time = {amount}": _product(rate, time, amount) for rate, (amount, time) in RATES.items()},
}
RULES = {
    "timings": {
        **ON_EVERY_ROW,
        "rate x time = delivered samples": _product("throughput_samples_per_s", "training_time_s", "train_samples"),
        **{f"no share above all: {column}": _at_most(column, most) for column, most in SHARES.items()},
        **{f"repeats of a cell have the same {column}": _same_in_a_cell(column) for column in AMOUNTS},
    },
    "summary": {
        **ON_EVERY_ROW,
        "efficiency x N = speed-up": _product("scaling_efficiency", "devices", "speedup"),
        **{f"low <= value <= high: {column}": _ordered(column) for column in [*ESTIMATED, "speedup"]},
        **{
            f"no share above all: {column}": _at_most(column, most)
            for column, most in SHARES.items()
            if column in ESTIMATED
        },
    },
}


def refuse_contradictions(table: str, rows: pd.DataFrame) -> None:
    """Raises UserError: the first row of the table for which a rule does not hold, the rule, and the row's numbers."""
    for name, rule in RULES[table].items():
        held = rule.holds(rows)
        if not held.all():
            row = rows.iloc[int(held.argmin())]
            repeat = f"/r{row['repeat']}" if "repeat" in rows else ""
            numbers = ", ".join(f"{column} = {row[column]}" for column in rule.columns)
            raise UserError(
                f"{row.experiment}/{name_of(row)}{repeat}: its row of {table} contradicts itself: {name} does not hold "
                f"({numbers}); measure it again (snakemake --forcerun trial -- <its record>), and if it is said again, "
                "report it: dpscale is wrong"
            )
