"""What an epoch costs in energy, where devices tell it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpscale.advice.cells import Cell, text
from dpscale.advice.least import Least, least, withheld
from dpscale.advice.ranking import Candidate, rank
from dpscale.advice.sentences import Sentence
from dpscale.tables.cells import CELL_KEY, name_of
from dpscale.words import listed

if TYPE_CHECKING:
    import pandas as pd

ENERGY = Least(
    about="energy",
    does="takes the least energy",
    did="took the least energy",
    noun="energy",
    unit="J",
    file="monitor.csv",
    columns=("energy_per_epoch_J",),
)
KINDS = {"gpu": "GPUs", "package": "CPU packages"}  # of the table monitor: those with counters of energy


def energy(found: Sequence[Cell], absent: Sequence[Cell], monitor: pd.DataFrame) -> Sentence:
    """Of cells that train one model. A kind of device counts if all of it told its energy, in every launch of every cell."""
    counters = monitor[monitor.kind.isin(KINDS)]
    by_cell = {name_of(rows.iloc[0]): rows for _, rows in counters.groupby(CELL_KEY, sort=False)}
    counted = [kind for kind in KINDS if found and all(_all_tell(by_cell.get(cell.name), cell, kind) for cell in found)]
    if not counted:
        reasons = [reason for reason in map(text, counters.reason.unique()) if reason]
        said = withheld(
            ENERGY,
            "no kind of device told its energy in every launch" if len(monitor) else "nothing was monitored",
            "energy counters of all GPUs (NVML) or CPU packages (RAPL)",
            "Measure on a machine whose energy counters you may read."
            if len(monitor)
            else "Set monitor_interval_s, on a machine whose energy counters you may read.",
        )
        return replace(said, why=f"What the monitor says: {'; '.join(reasons)}." if reasons else "")
    energies_J = {cell.name: _energies_J(by_cell[cell.name], counted) for cell in found}
    told_J = counters[counters.kind.isin(counted)].energy_per_epoch_J
    if not (told_J.ge(0).all() and told_J.lt(math.inf).all()) or any(
        energy_J <= 0 for launches in energies_J.values() for energy_J in launches
    ):
        return withheld(
            ENERGY,
            "counters told no energy at all in some launch, or less than none, or without end, which can't be",
            "energy counters that count",
            "See whether the counters of energy of this machine move at all.",
        )
    said = least(ENERGY, rank([Candidate(cell, energies_J[cell.name]) for cell in found]), absent)
    scope = f"Counted are whole {listed([KINDS[kind] for kind in counted])} of the nodes used."
    return replace(said, why=f"{said.why} {scope}".strip())


def _all_tell(rows: pd.DataFrame | None, cell: Cell, kind: str) -> bool:
    if rows is None:
        return False
    mine = rows[rows.kind == kind]
    counters = {len(rows.drop_duplicates(["node", "name"])) for _, rows in mine.groupby("repeat")}
    of_each_launch = set(mine.repeat) == set(cell.launches.repeat) and len(counters) == 1
    return (
        of_each_launch
        and set(mine.node) == set(range(cell.summary.nodes))
        and bool(mine.energy_per_epoch_J.notna().all())
    )


def _energies_J(rows: pd.DataFrame, kinds: Sequence[str]) -> list[float]:
    """Of each launch, summed over devices and nodes."""
    sums: list[float] = rows[rows.kind.isin(kinds)].groupby("repeat").energy_per_epoch_J.sum().tolist()
    return sums
