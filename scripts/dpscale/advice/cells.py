"""Cells as advice looks at them: those that train one model, whatever else was measured for comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpscale.advice.sentences import Evidence
from dpscale.advice.words import cells_named
from dpscale.statistics import Estimate
from dpscale.strategies import STRATEGIES
from dpscale.tables.cells import CELL_KEY, measured, name_of
from dpscale.trial import PLACEBO
from dpscale.words import listed

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
        if any(is_empty(row[name]) for name in (column, f"{column}_low", f"{column}_high")):
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
        if launches[name_of(row)].epoch_time_s.notna().any()  # without any time there is nothing to say of it
    ]


def unmeasured(tables: Tables, timed: Sequence[Cell]) -> list[Cell]:
    """Those that are planned, train a model, and are none of `timed`, which have the time of an epoch."""
    timings, names = tables["timings"], {cell.name for cell in timed}
    planned = [Cell(name_of(row), int(row.devices), row, timings.iloc[:0]) for _, row in tables["summary"].iterrows()]
    return trainings([cell for cell in planned if cell.name not in names])


def reasons_of(found: Sequence[Cell]) -> str:
    """What is planned, and why it has no time: each reason once."""
    cells_by_reason = _grouped([(_reason(cell), cell.name) for cell in found])
    return f"Planned, but without any time of an epoch: {'; '.join(cells_by_reason)}." if found else ""


def _reason(cell: Cell) -> str:
    return text(cell.summary.reason) or ("launches have no time" if cell.summary.status == "ok" else "not measured yet")


def _grouped(found: Sequence[tuple[str, str]]) -> list[str]:
    """`a and b: the text`, of (text, name)."""
    names: dict[str, list[str]] = {}
    for what, name in found:
        names.setdefault(what, []).append(name)
    return [f"{cells_named(named)}: {what}" for what, named in names.items()]


def to_measure(found: Sequence[Cell]) -> str:
    """How they get a time; where nothing is planned, what to plan."""
    if not found:
        return "Add a strategy that trains a model."
    if all(cell.summary.status == "unavailable" for cell in found):
        return "Once what their reasons name is there, run `make reprobe`."
    return "Measure what is planned: `make run`."


def measure_again(names: Sequence[str]) -> str:
    """How what was measured already is measured anew; nothing is deleted."""
    folders = cells_named([f"trials/{name}" for name in names])
    return (
        f"Measure {'it' if len(names) == 1 else 'them'} again: move {folders}, beside tables/, away, then `make run`."
    )


def evidence_of(found: Sequence[Cell]) -> list[Evidence]:
    """That they have no time."""
    return [Evidence("summary.csv", ("status", "reason"), tuple(cell.name for cell in found))] if found else []


def _by_cell(timings: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(name_of(rows.iloc[0]), rows) for _, rows in timings.groupby(CELL_KEY, sort=False)]


def trainings(found: Sequence[Cell]) -> list[Cell]:
    """Without the placebo, and without controls, whose ranks never agree on one model."""
    return [cell for cell in found if cell.summary.strategy != PLACEBO and not is_control(cell)]


def is_control(cell: Cell) -> bool:
    return not STRATEGIES[cell.summary.base].exchanges_gradients and cell.summary.strategy != PLACEBO


def on_more_devices(cell: Cell, found: Sequence[Cell]) -> list[Cell]:
    """The same way to train, in the same precision: only with these do more devices show what they bring."""
    same = ("strategy", "launcher", "precision")
    return [
        other
        for other in found
        if other.devices > cell.devices and all(other.summary[fact] == cell.summary[fact] for fact in same)
    ]


def warnings_of(found: Sequence[Cell]) -> tuple[str, ...]:
    """What to know before trusting these cells."""
    return tuple(_grouped([(warning, cell.name) for cell in found if (warning := text(cell.summary.warnings))]))


def other_precision(best: Cell, found: Sequence[Cell]) -> str:
    """A caution: fewer bits are quicker, and not the same training."""
    others = {cell.summary.precision for cell in found} - {best.summary.precision}
    return f"{best.name} is in {best.summary.precision}, others are in {listed(sorted(others))}" if others else ""


def base_of(cell: Cell, found: Sequence[Cell]) -> Cell | None:
    """The cell that its speed-up is over."""
    return next((other for other in found if other.name == text(cell.summary.base_cell)), None)
