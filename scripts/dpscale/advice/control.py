"""What limits a cell whose steps are not explained, from the control beside it: `independent`, DDP without its exchange.

In the device time that the control takes for a sample, one device alone takes e, its scaling efficiency; ranks cost each other
1 - e; and the exchange takes r - 1 more, r the control's throughput over that of DDP.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpscale.advice.causes import CONTENTION, EXCHANGE, Found
from dpscale.advice.cells import INTERVAL, Cell, is_control, warnings_of
from dpscale.advice.least import MAKE_MORE, NARROWER
from dpscale.advice.sentences import SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.words import amount, sentence
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
        for cell in found
        if cell.summary.base == "ddp" and cell.devices > 1 and cell.name not in explained
        for control in controls
        if all(cell.summary[fact] == control.summary[fact] for fact in ALIKE)
    ]
    pairs.sort(key=lambda pair: -pair[0].devices)
    return [_of_cell(cell, control, comparisons) for cell, control in pairs]


def _of_cell(cell: Cell, control: Cell, comparisons: pd.DataFrame) -> Sentence:
    ratio, compared = _ratio(control, cell, comparisons)
    efficiency = control.estimate("scaling_efficiency", "speedup_spread")
    said = Sentence(
        about="cause",
        support=WITHHELD,
        verdict=f"What limits {cell.name} most can't be said",
        cell=cell.name,
        next_steps=(EXPLAIN,),
        follows_from=[
            Evidence("summary.csv", ("scaling_efficiency", "speedup_spread"), (control.name,)),
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
    # in % of the device time that a sample takes in the cell
    scale = 100 / ratio.value
    lost = Estimate(1 - efficiency.value, 1 - efficiency.high, 1 - efficiency.low, efficiency.spread)
    added = Estimate(ratio.value - 1, ratio.low - 1, ratio.high - 1, ratio.spread)
    parts = [Found(CONTENTION, lost.times(scale)), Found(EXCHANGE, added.times(scale))]
    larger, smaller = sorted(parts, key=lambda part: -part.takes.value)
    said = replace(said, estimate=larger.takes, unit="% of the device time of a sample")
    shares = " and ".join(f"{part.name} takes {amount(part.takes, '%')}" for part in (larger, smaller))
    measured = f"Of the device time of a sample {shares}."
    if any(part.takes.spread != INTERVAL for part in parts):
        return replace(
            said,
            verdict=f"{said.verdict}: with fewer than 6 launches there are no intervals.",
            why=f"{measured} That may be chance.",
            missing=f"launches: 6 of {cell.name}, {control.name} and {control.summary.base_cell}",
            next_steps=(MAKE_MORE, EXPLAIN),
        )
    if larger.takes.low <= smaller.takes.high or larger.takes.low <= 0:
        return replace(
            said,
            verdict=f"{said.verdict}: its causes do not part.",
            why=measured,
            missing=f"launches of {cell.name}, {control.name} and {control.summary.base_cell}: so many that intervals part",
            next_steps=(NARROWER, EXPLAIN),
        )
    return replace(
        said,
        support=SHOWN,
        verdict=f"{cell.name} is limited most by {larger.name}: of the device time of a sample it takes {amount(larger.takes, '%')}.",
        why=sentence(
            f"{smaller.name} takes {amount(smaller.takes, '%')}; both by the control {control.name}, which exchanges nothing."
        ),
        next_steps=(larger.cause.remedy,),
    )


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
