"""Cells as advice looks at them: those that train one model, whatever else was measured for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpscale.statistics import Estimate
from dpscale.strategies import STRATEGIES
from dpscale.tables.cells import CELL_KEY, measured, name_of
from dpscale.trial import PLACEBO

if TYPE_CHECKING:
    import pandas as pd

Tables = Mapping[str, "pd.DataFrame"]
INTERVAL = "95 % interval"  # of a median, which fewer than 6 values don't have


@dataclass(frozen=True)
class Cell:
    """A measured cell."""

    name: str
    devices: int
    summary: Any  # its row
    launches: pd.DataFrame  # its rows of timings

    def estimate(self, column: str, spread: str = "spread") -> Estimate | None:
        """A column of the summary with its low and high; None where it is empty."""
        row = self.summary
        if is_empty(row[column]):
            return None
        return Estimate(float(row[column]), float(row[f"{column}_low"]), float(row[f"{column}_high"]), row[spread])


def is_empty(value: Any) -> bool:
    """As pandas reads an empty cell, or as it was before it was written."""
    return value is None or value == "" or value != value


def text(value: Any) -> str:
    return "" if is_empty(value) else str(value)


def cells(tables: Tables) -> list[Cell]:
    """All that were measured, in the order of the plan."""
    launches = {name: measured(rows) for name, rows in _by_cell(tables["timings"])}
    return [
        Cell(name_of(row), int(row.devices), row, launches[name_of(row)])
        for _, row in measured(tables["summary"]).iterrows()
    ]


def _by_cell(timings: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(name_of(rows.iloc[0]), rows) for _, rows in timings.groupby(CELL_KEY, sort=False)]


def trainings(found: Sequence[Cell]) -> list[Cell]:
    """Without the placebo, and without controls, whose ranks never agree on one model."""
    return [cell for cell in found if cell.summary.strategy != PLACEBO and not is_control(cell)]


def is_control(cell: Cell) -> bool:
    return not STRATEGIES[cell.summary.base].exchanges_gradients and cell.summary.strategy != PLACEBO


def warnings_of(found: Sequence[Cell]) -> tuple[str, ...]:
    """What to know before trusting these cells."""
    return tuple(f"{cell.name}: {warning}" for cell in found if (warning := text(cell.summary.warnings)))


def base_of(cell: Cell, found: Sequence[Cell]) -> Cell | None:
    """The cell that its speed-up is over."""
    return next((other for other in found if other.name == text(cell.summary.base_cell)), None)
