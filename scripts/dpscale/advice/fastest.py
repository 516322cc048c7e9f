"""What trains fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpscale.advice.cells import INTERVAL, Cell, base_of
from dpscale.advice.least import Least, least
from dpscale.advice.ranking import Candidate, Ranking, rank
from dpscale.advice.sentences import SHOWN, Sentence
from dpscale.advice.words import amount
from dpscale.tables.cells import floats
from dpscale.words import listed

FASTEST = Least(
    about="fastest",
    does="trains fastest",
    did="trained fastest",
    noun="time",
    unit="s",
    file="timings.csv",
    columns=("epoch_time_s",),
)


def by_time(found: Sequence[Cell]) -> Ranking | None:
    return rank([Candidate(cell, floats(cell.launches, "epoch_time_s")) for cell in found])


def fastest(found: Sequence[Cell]) -> Sentence:
    """Of cells that train one model."""
    ranking = by_time(found)
    said = least(FASTEST, ranking)
    if ranking is None:
        return said
    best = ranking.best.cell
    if said.support == SHOWN:
        said = replace(said, next_steps=(_next_step(best, found),))
    cautions = filter(None, [_learns_less(best, found), _other_precision(best, found)])
    return replace(said, warnings=(*said.warnings, *cautions))


def _next_step(best: Cell, found: Sequence[Cell]) -> str:
    most = max(cell.devices for cell in found)
    if best.devices == most:
        return f"More than {most} devices were not measured: add larger topologies, or have them predicted."
    return f"Train on {best.devices} rather than {most} devices: more of them did not help here."


def _learns_less(best: Cell, found: Sequence[Cell]) -> str:
    """An epoch is no measure of learning: larger global batches make fewer steps of it."""
    base = base_of(best, found)
    if base is None:
        return ""
    mine, others = best.estimate("final_accuracy"), base.estimate("final_accuracy")
    if mine is None or others is None or {mine.spread, others.spread} != {INTERVAL} or not mine.high < others.low:
        return ""
    return (
        f"after the same epochs {best.name} is less accurate than {base.name}: {amount(mine.times(100), '%')}, there "
        f"{amount(others.times(100), '%')}"
    )


def _other_precision(best: Cell, found: Sequence[Cell]) -> str:
    others = {cell.summary.precision for cell in found} - {best.summary.precision}
    return f"{best.name} is in {best.summary.precision}, others are in {listed(sorted(others))}" if others else ""
