"""Cells in a table of timings: which rows are one, what it is called, and how fast two of them are against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpscale import statistics

if TYPE_CHECKING:
    import pandas as pd

CELL_KEY = ["strategy", "launcher", "nodes", "devices_per_node"]


def cells_of(timings: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each cell, in the order of the plan."""
    return [cell for _, cell in timings.groupby(CELL_KEY, sort=False)]


def name_of(row: Any) -> str:
    """strategy/launcher/topology of a row."""
    return f"{row.strategy}/{row.launcher}/{row.nodes}x{row.devices_per_node}"


def measured(cell: pd.DataFrame) -> pd.DataFrame:
    return cell[cell.status == "ok"]


def floats(rows: pd.DataFrame, column: str) -> list[float]:
    """What there is in a column."""
    return rows[column].dropna().astype(float).tolist()


def throughput_ratio(mine: pd.DataFrame, other: pd.DataFrame) -> statistics.Estimate:
    """Throughput of one cell over that of another, from their measured rows: times are what was measured, and all repeats
    of a cell deliver the same samples."""
    of_times = statistics.ratio(floats(other, "epoch_time_s"), floats(mine, "epoch_time_s"))
    samples = mine.train_samples_per_epoch.iloc[0] / other.train_samples_per_epoch.iloc[0]
    return of_times.times(float(samples))
