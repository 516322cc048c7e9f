"""What limits a cell whose steps are not explained, from the control beside it: `independent`, DDP without its exchange.

In the device time that a sample takes, with e the control's scaling efficiency, w that of the control or DDP on one device, and
r the control's throughput over that of DDP: the exchange takes 1 - 1 / r, ranks cost each other (w - e) / r, and DDP's wrapper
(1 - w) / r. Without a measured w the last two are one cause.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpscale.advice.causes import APART, CONTENTION, EXCHANGE, WRAPPER, Found
from dpscale.advice.cells import INTERVAL, Cell, is_control, text, trainings, warnings_of
from dpscale.advice.least import MAKE_MORE, NARROWER
from dpscale.advice.sentences import SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.words import amount, cells_named, sentence
from dpscale.statistics import Estimate
from dpscale.tables.cells import CELL_KEY

if TYPE_CHECKING:
    import pandas as pd

ALIKE = ["launcher", "nodes", "devices_per_node", "precision", "compile", "channels_last", "global_batch_size"]
EXPLAIN = "Set explain: true, which says where a step's time goes."


def by_control(found: Sequence[Cell], comparisons: pd.DataFrame, explained: Collection[str]) -> list[Sentence]:
    """Of each cell of DDP on several devices that is not explained and has a control, those on the most devices first."""
    controls = [cell for cell in found if is_control(cell)]
    pairs = [
        (cell, control)
        for cell in trainings(found)
        if cell.summary.base == "ddp" and cell.devices > 1 and cell.name not in explained
        for control in controls
        if all(cell.summary[fact] == control.summary[fact] for fact in ALIKE)
    ]
    pairs.sort(key=lambda pair: -pair[0].devices)
    return [_of_cell(cell, control, found, comparisons) for cell, control in pairs]


def _of_cell(cell: Cell, control: Cell, found: Sequence[Cell], comparisons: pd.DataFrame) -> Sentence:
    ratio, compared = _ratio(control, cell, comparisons)
    efficiency = control.estimate("scaling_efficiency", "speedup_spread")
    alone = _on_one(cell, control, found)
    wrapper = None if alone is None else alone.estimate("scaling_efficiency", "speedup_spread")
    base = text(control.summary.base_cell)
    rows = [
        name for name in dict.fromkeys([cell.name, control.name, "" if alone is None else alone.name, base]) if name
    ]
    said = Sentence(
        about="cause",
        support=WITHHELD,
        verdict=f"What limits {cell.name} most can't be said",
        cell=cell.name,
        next_steps=(EXPLAIN,),
        follows_from=[
            Evidence("summary.csv", ("scaling_efficiency", "speedup_spread"), tuple(rows)),
            Evidence("comparisons.csv", ("other", "throughput_ratio", "spread"), (compared,)),
        ],
        warnings=warnings_of([cell, control]),
    )
    if efficiency is None:
        return replace(
            said,
            verdict=f"{said.verdict}: its control {control.name} has no base, one device with all else equal.",
            missing=f"a base of {control.name}",
        )
    parts = _parts(ratio, efficiency, wrapper, cell)
    if alone is not None and alone.name == control.summary.base_cell:
        # the base has the wrapper, too: nothing says what it takes
        parts = [part for part in parts if part.cause is not WRAPPER]
    said = replace(said, estimate=parts[0].takes, unit="% of the device time of a sample")
    measured = f"Of the device time of a sample {', '.join(map(_takes, parts))}."
    if any(part.takes.spread != INTERVAL for part in parts):
        return replace(
            said,
            verdict=f"{said.verdict}: with fewer than 6 launches there are no intervals.",
            why=f"{measured} That may be chance.",
            missing=f"launches: 6 of {cells_named(rows)}",
            next_steps=(MAKE_MORE, EXPLAIN),
        )
    larger, *others = parts
    named = f"launches of {cells_named(rows)}"
    if larger.takes.high <= 0:
        return replace(
            said,
            support=SHOWN,
            verdict=f"{cell.name} loses nothing by its number of devices: no cause takes any time.",
            why=measured,
            next_steps=("Look at larger topologies: what limits them is not to be seen here.",),
        )
    if larger.takes.low <= 0:
        return replace(
            said,
            verdict=f"{said.verdict}: no cause is shown to take any time.",
            why=measured,
            missing=f"{named}: so many that an interval lies above zero",
            next_steps=(NARROWER, EXPLAIN),
        )
    if any(larger.takes.low <= other.takes.high for other in others):
        return replace(
            said,
            verdict=f"{said.verdict}: its causes do not part.",
            why=measured,
            missing=f"{named}: so many that intervals part",
            next_steps=(NARROWER, EXPLAIN),
        )
    return replace(
        said,
        support=SHOWN,
        verdict=f"{cell.name} is limited most by {larger.name}: of the device time of a sample it takes {amount(larger.takes, '%')}.",
        why=sentence(f"{'; '.join(map(_takes, others))}; by the control {control.name}, which exchanges nothing."),
        next_steps=(larger.cause.remedy,),
    )


def _on_one(cell: Cell, control: Cell, found: Sequence[Cell]) -> Cell | None:
    """The control on one device, or else DDP: what its wrapper costs without other ranks."""
    alike = [fact for fact in ALIKE if fact not in ("nodes", "devices_per_node", "global_batch_size")]
    for strategy in (control.summary.strategy, cell.summary.strategy):
        for other in found:
            if (other.devices, other.summary.strategy) == (1, strategy) and all(
                other.summary[fact] == cell.summary[fact] for fact in alike
            ):
                return other
    return None


def _parts(ratio: Estimate, efficiency: Estimate, wrapper: Estimate | None, cell: Cell) -> list[Found]:
    """In % of the device time that a sample takes in the cell, the largest first. Ends are those of the worst case."""
    exchange = Found(EXCHANGE, Estimate(1 - 1 / ratio.value, 1 - 1 / ratio.low, 1 - 1 / ratio.high, ratio.spread))
    contention = CONTENTION if cell.summary.devices_per_node > 1 else APART
    if wrapper is None:
        lost = _lost(1.0, 1.0, 1.0, efficiency, ratio)
        parts = [exchange, Found(replace(contention, name=f"{contention.name} or {WRAPPER.name}"), lost)]
    else:
        lost = _lost(wrapper.value, wrapper.low, wrapper.high, efficiency, ratio)
        itself = _lost(1.0, 1.0, 1.0, wrapper, ratio)
        parts = [exchange, Found(contention, lost), Found(WRAPPER, itself)]
    return sorted((Found(part.cause, part.takes.times(100)) for part in parts), key=lambda part: -part.takes.value)


def _lost(value: float, low: float, high: float, kept: Estimate, ratio: Estimate) -> Estimate:
    """Efficiency that was there, less what is kept, over the ratio."""
    spread = next((each.spread for each in (kept, ratio) if each.spread != INTERVAL), INTERVAL)
    least, most = low - kept.high, high - kept.low
    ends = [end / divisor for end in (least, most) for divisor in (ratio.low, ratio.high)]
    return Estimate((value - kept.value) / ratio.value, min(ends), max(ends), spread)


def _takes(part: Found) -> str:
    if part.takes.high <= 0:
        return f"{part.name} takes no time"
    if part.takes.low <= 0:
        return f"{part.name} takes {amount(part.takes, '%')}, which may be none"
    return f"{part.name} takes {amount(part.takes, '%')}"


def _ratio(control: Cell, cell: Cell, comparisons: pd.DataFrame) -> tuple[Estimate, str]:
    """Throughput of the control over that of the cell, and whose row compares the two."""
    place = comparisons[(comparisons[CELL_KEY[1:]] == cell.summary[CELL_KEY[1:]]).all(axis=1)]
    for row in place.itertuples():
        ratio = Estimate(row.throughput_ratio, row.throughput_ratio_low, row.throughput_ratio_high, row.spread)
        if (row.strategy, row.other) == (control.summary.strategy, cell.summary.strategy):
            return ratio, control.name
        if (row.strategy, row.other) == (cell.summary.strategy, control.summary.strategy):
            return Estimate(1 / ratio.value, 1 / ratio.high, 1 / ratio.low, ratio.spread), cell.name
    raise AssertionError(f"{cell.name} and {control.name} were measured in one place, and are not compared")
