"""Cells in a table of timings: which rows are one, what it is called, and how fast it is against another."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Speed:
    """What a cell's launches say of how fast it is."""

    epoch_times_s: list[float]
    throughputs: list[float]  # samples per s
    samples: float  # of an epoch, the same in all launches

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Speed:
        """Of measured rows."""
        times, rates = (floats(rows, name) for name in ("epoch_time_s", "throughput_samples_per_s"))
        return cls(times, rates, float(rows.train_samples_per_epoch.iloc[0]))

    def over(self, other: Speed) -> statistics.Estimate:
        """Ratio of throughputs. Medians are of times, as that is what was measured."""
        return statistics.ratio(other.epoch_times_s, self.epoch_times_s).times(self.samples / other.samples)
