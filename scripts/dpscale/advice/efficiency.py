"""On how many devices at most a scaling efficiency is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpscale.advice.cells import (
    INTERVAL,
    Cell,
    base_of,
    evidence_of,
    measure_again,
    reasons_of,
    text,
    to_measure,
    warnings_of,
)
from dpscale.advice.least import MAKE_MORE, NARROWER
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.words import amount, cells_named
from dpscale.statistics import Estimate

COLUMNS = ("scaling_efficiency", "scaling_efficiency_low", "scaling_efficiency_high", "speedup_spread")
ADD_A_BASE = "Add 1x1 to the topologies, and single to the strategies."


@dataclass(frozen=True)
class _Cells:
    """Cells on several devices, by what their intervals say."""

    shares: dict[str, Estimate]  # cell -> its scaling efficiency, where it has a base
    keep: list[Cell]  # on the most devices on which any does
    lack: list[Cell]  # on more
    undecided: list[Cell]  # on more
    fewer: list[Cell]  # on fewer, several: the best of each number of them, where it is not shown to be kept

    @property
    def most(self) -> int:
        """Devices on which it is shown to be kept."""
        return self.keep[0].devices if self.keep else 1

    def best(self, cells: Sequence[Cell]) -> Cell:
        return max(cells, key=lambda cell: self.shares[cell.name].value)

    def of(self, cell: Cell) -> str:
        return f"{cell.name} has {amount(self.shares[cell.name].times(100), '%')}"


def _sorted(several: Sequence[Cell], least_efficiency: float) -> _Cells:
    shares = {cell.name: share for cell in several if (share := cell.estimate(COLUMNS[0], COLUMNS[3])) is not None}
    trusted = [cell for cell in several if cell.name in shares and shares[cell.name].spread == INTERVAL]
    keep = [cell for cell in trusted if shares[cell.name].low >= least_efficiency]
    lack = [cell for cell in trusted if shares[cell.name].high < least_efficiency]
    most = max((cell.devices for cell in keep), default=1)
    kept_on = {cell.devices for cell in keep}
    below = {cell.devices for cell in several if cell.name in shares and cell.devices < most} - kept_on
    fewer = [
        max(
            (cell for cell in several if cell.devices == devices and cell.name in shares),
            key=lambda cell: shares[cell.name].value,
        )
        for devices in sorted(below)
    ]
    return _Cells(
        shares,
        keep=[cell for cell in keep if cell.devices == most],
        lack=[cell for cell in lack if cell.devices > most],
        undecided=[cell for cell in several if cell not in keep and cell not in lack and cell.devices > most],
        fewer=fewer,
    )


def efficiency(found: Sequence[Cell], absent: Sequence[Cell], least_efficiency: float) -> Sentence:
    """The most devices at a scaling efficiency of at least so much. Of cells that train one model."""
    wanted = f"{100 * least_efficiency:.10g} %"
    several = [cell for cell in found if cell.devices > 1]
    unknown = f"Up to how many devices scaling efficiency stays at {wanted} or more can't be said"
    said = Sentence(about="efficiency", support=WITHHELD, verdict=f"{unknown}.", unit="devices")
    planned = [cell for cell in absent if cell.devices > 1]
    if not several and (planned or not found):
        named = planned or absent
        what = "on several devices" if found else "that trains a model"
        return replace(
            said,
            verdict=f"{unknown}: nothing {what} was measured.",
            why=reasons_of(named),
            missing="cells on more than one device",
            next_steps=(to_measure(named),),
            follows_from=evidence_of(named),
        )
    if not several:
        return replace(
            said,
            verdict=f"{unknown}: only one device was measured.",
            missing="cells on more than one device",
            next_steps=("Add topologies such as 1x2.",),
        )
    said = replace(said, follows_from=[Evidence("summary.csv", COLUMNS, _with_bases(several, found))])
    cells = _sorted(several, least_efficiency)
    if not cells.shares:
        if any(text(cell.summary.base_cell) for cell in several):
            return replace(
                said,
                verdict=f"{unknown}: rows have a base and no scaling efficiency.",
                missing=f"times of {cells_named([cell.name for cell in several])}, and of their bases",
                next_steps=(measure_again([cell.name for cell in several]),),
            )
        return replace(
            said,
            verdict=f"{unknown}: nothing was measured on one device with all else equal.",
            missing="a base: single, or the same strategy on one device",
            next_steps=(ADD_A_BASE,),
        )
    best = cells.best(cells.keep or [cell for cell in several if cell.name in cells.shares])
    base = base_of(best, found)
    said = replace(said, cell=best.name, warnings=warnings_of([best] if base is None else [best, base]))
    if cells.undecided:
        said = _with_what_is_open(said, cells, wanted)
    else:
        larger = [] if cells.lack else [cell for cell in planned if cell.devices > cells.most]
        said = replace(
            said,
            support=SHOWN,
            why=f"{_above(cells)} {reasons_of(larger)}".strip(),
            next_steps=(to_measure(larger),) if larger else _next_steps(cells),
            follows_from=[*said.follows_from, *evidence_of(larger)],
        )
    if cells.keep and cells.fewer:
        missing, step = _of_fewer(cells, least_efficiency)
        on = "; ".join(f"on {cell.devices} that is not shown: {cells.of(cell)}" for cell in cells.fewer)
        return replace(
            said,
            support=PARTLY,
            verdict=f"On {cells.most} devices scaling efficiency is {wanted} or more: {cells.of(best)}; {on}.",
            missing="; ".join(filter(None, [missing, said.missing])),
            next_steps=(step,),
            estimate=Estimate(cells.most, cells.most, cells.most, ""),
        )
    if cells.keep:
        return replace(
            said,
            support=PARTLY if cells.undecided else SHOWN,
            verdict=f"{'At least up' if cells.undecided else 'Up'} to {cells.most} devices scaling efficiency stays at "
            f"{wanted} or more: {cells.of(best)}.",
            estimate=Estimate(cells.most, cells.most, cells.most, ""),
        )
    if cells.undecided:
        return replace(said, verdict=f"{unknown}. So far, at most, {cells.of(best)}.")
    return replace(
        said,
        verdict=f"No measured number of devices above one has a scaling efficiency of {wanted} or more: at most, {cells.of(best)}.",
        estimate=Estimate(1, 1, 1, ""),
        why="",
        next_steps=(
            "For the most work per device train on one, several trainings beside each other; or change what limits it, below.",
        ),
    )


def _with_bases(several: Sequence[Cell], found: Sequence[Cell]) -> tuple[str, ...]:
    bases = [base.name for cell in several if (base := base_of(cell, found)) is not None]
    return tuple(dict.fromkeys([*(cell.name for cell in several), *bases]))


def _few(cells: _Cells, of: Sequence[Cell]) -> list[str]:
    """Those with a share that has no interval."""
    return [cell.name for cell in of if cell.name in cells.shares and cells.shares[cell.name].spread != INTERVAL]


def _of_fewer(cells: _Cells, least_efficiency: float) -> tuple[str, str]:
    """What would say whether fewer devices have less, and why; and how to get it."""
    if few := _few(cells, cells.fewer):
        return f"launches: 6 of {cells_named(few)} and of the base", MAKE_MORE
    if across := [cell.name for cell in cells.fewer if cells.shares[cell.name].high >= least_efficiency]:
        return f"launches of {cells_named(across)}: so many that intervals part from what is asked for", NARROWER
    less = [cell.name for cell in cells.fewer]
    return f"what is different about {cells_named(less)}", f"{measure_again(less)} Do so before you add devices."


def _above(cells: _Cells) -> str:
    if not cells.lack:
        return "No larger number was measured."
    return f"On more devices at most {cells.of(cells.best(cells.lack))}."


def _next_steps(cells: _Cells) -> tuple[str, ...]:
    return () if cells.lack else ("More devices may do so, too: add larger topologies, or have them predicted.",)


def _with_what_is_open(said: Sentence, cells: _Cells, wanted: str) -> Sentence:
    """Why cells on more devices are undecided, and what would decide them."""
    based = [cell for cell in cells.undecided if cell.name in cells.shares]
    few = _few(cells, based)
    across = [cell for cell in based if cell.name not in few]
    without = [cell for cell in cells.undecided if cell not in based]
    baseless = [cell.name for cell in without if not text(cell.summary.base_cell)]
    timeless = [cell.name for cell in without if cell.name not in baseless]
    why, missing, next_steps = [], [], []
    if few:
        why.append(f"There is no interval for {cells_named(few)}: it takes 6 launches of each and of the base.")
        missing.append(f"launches: 6 of {cells_named(few)} and of the base")
    if across:
        why.append(f"Intervals hold {wanted}: {cells_named([cells.of(cell) for cell in across])}.")
        missing.append(
            f"launches of {cells_named([cell.name for cell in across])}: so many that its interval lies on one side of {wanted}"
        )
    if baseless:
        why.append(f"There is no base for {cells_named(baseless)}: one device with all else equal.")
        missing.append(f"a base of {cells_named(baseless)}")
    if timeless:
        why.append(f"Rows of {cells_named(timeless)} have a base and no scaling efficiency.")
        missing.append(f"times of {cells_named(timeless)}, and of their bases")
    if few or across:
        next_steps.append(NARROWER if across else MAKE_MORE)  # the former repeats what has few launches, too
    if baseless:
        next_steps.append(ADD_A_BASE)
    if timeless:
        next_steps.append(measure_again(timeless))
    return replace(said, why=" ".join(why), missing="; ".join(missing), next_steps=tuple(next_steps))
