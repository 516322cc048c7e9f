"""Cells in a table of timings: which rows are one, what it is called, and how fast it is against another."""

from __future__ import annotations

from collections.abc import Sequence
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


def judgements(compared: Sequence[Versus]) -> list[dict[str, Any]]:
    """The columns of each of a table's comparisons. p-values are adjusted by Holm's method over those that have enough
    launches; of the others there is none, and they say how many it takes if all had as many."""
    least = _least_tested([versus.fewest_repeats for versus in compared])
    tested = [versus for versus in compared if versus.fewest_repeats >= least]
    adjusted = iter(statistics.holm([versus.test.p_value for versus in tested]))
    rows = []
    for versus in compared:
        is_tested = versus.fewest_repeats >= least
        p_value = next(adjusted) if is_tested else None
        needed = statistics.repeats_needed(len(tested if is_tested else compared))
        verdict = versus.verdict(1.0 if p_value is None else p_value, needed)
        rows.append(versus.columns | {"verdict": verdict, "p_value_holm": p_value, "repeats_needed": needed})
    return rows


def _least_tested(repeats: Sequence[int]) -> int:
    """Launches of each from which on comparisons are tested, and are Holm's family: the fewest with which a difference could be
    shown among all that have as many. Those with fewer can show nothing, and would only take from the rest.

    It is known before any time is: a family that depends on outcomes would not keep the rate of false verdicts (Tarone,
    Biometrics 46, 1990).
    """
    least = statistics.repeats_needed(1)
    while (tested := sum(count >= least for count in repeats)) and statistics.repeats_needed(tested) > least:
        least += 1
    return least
