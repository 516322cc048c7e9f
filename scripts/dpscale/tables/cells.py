"""Cells in a table of timings: which rows are one, what it is called, and how fast it is against another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpscale import statistics
from dpscale.words import listed

if TYPE_CHECKING:
    import pandas as pd

FASTER, SLOWER, NO_DIFFERENCE, TOO_FEW = "faster", "slower", "no difference shown", "too few repeats"  # verdicts
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


def reaches(cells: pd.DataFrame, *counts: str) -> str:
    """What lies between low and high; where it is not the same in all cells, of which numbers of launches each is.

    Args:
        cells: with a column `spread`.
        counts: columns with a number of launches each.
    """
    kinds = list(cells.spread.dropna().unique())
    if len(kinds) < 2:
        return "".join(kinds)
    return listed(f"{kind} where n is {_numbers_of(cells[cells.spread == kind][[*counts]])}" for kind in kinds)


def _numbers_of(counts: pd.DataFrame) -> str:
    rows = sorted(set(counts.itertuples(index=False, name=None)))
    return listed((", ".join(map(str, row)) for row in rows), last="or")


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


@dataclass(frozen=True)
class Versus:
    """One cell against another: how much faster it is, and whether that may be chance."""

    ratio: statistics.Estimate  # of throughputs
    test: statistics.RankTest
    fewest_repeats: int  # of the two

    @classmethod
    def of(cls, mine: Speed, other: Speed) -> Versus:
        fewest = min(len(mine.epoch_times_s), len(other.epoch_times_s))
        return cls(mine.over(other), statistics.rank_test(mine.throughputs, other.throughputs), fewest)

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "throughput_ratio": self.ratio.value,
            "throughput_ratio_low": self.ratio.low,
            "throughput_ratio_high": self.ratio.high,
            "spread": self.ratio.spread,
            "cliffs_delta": self.test.cliffs_delta,
            "p_value": self.test.p_value,
        }

    def verdict(self, p_value: float, needed: int) -> str:
        """faster or slower, if it is shown; too few repeats, if it could not be.

        Args:
            p_value: adjusted, where there are several such pairs.
            needed: repeats of each from which on a difference can be shown.
        """
        if self.fewest_repeats < needed:
            return f"{TOO_FEW}: it takes {needed} of each"
        if not statistics.differs(self.ratio, p_value):
            return NO_DIFFERENCE
        return FASTER if self.ratio.value > 1 else SLOWER
