"""What trains fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpscale.advice.cells import (
    INTERVAL,
    Cell,
    base_of,
    evidence_of,
    on_more_devices,
    reasons_of,
    text,
    to_measure,
)
from dpscale.advice.least import Least, least
from dpscale.advice.ranking import Candidate, Ranking, rank
from dpscale.advice.sentences import SHOWN, Evidence, Sentence
from dpscale.advice.words import amount
from dpscale.tables.cells import floats
from dpscale.words import counted

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


def fastest(found: Sequence[Cell], absent: Sequence[Cell]) -> Sentence:
    """Of cells that train one model; `absent` are those that were planned and have nothing measured."""
    ranking = by_time(found)
    said = least(FASTEST, ranking, absent)
    if ranking is None:
        return said
    best = ranking.best.cell
    if said.support == SHOWN:
        planned = [] if on_more_devices(best, found) else on_more_devices(best, absent)
        said = replace(said, next_steps=(to_measure(planned) if planned else _next_step(best, found),))
    if ranking.duels:
        said = replace(
            said,
            why=f"{said.why} {reasons_of(absent)}".strip(),
            follows_from=[*said.follows_from, *evidence_of(absent)],
        )
    if less := _learns_less(best, found):
        compared = Evidence("summary.csv", ("final_accuracy", "spread"), (best.name, text(best.summary.base_cell)))
        said = replace(said, warnings=(*said.warnings, less), follows_from=[*said.follows_from, compared])
    return said


def _next_step(best: Cell, found: Sequence[Cell]) -> str:
    alike = [cell for cell in found if cell.summary.precision == best.summary.precision and cell.devices > best.devices]
    if alike and best.summary.base == "single":
        return "Train on one device: all that was measured on more took longer."
    more = on_more_devices(best, found)
    if more:
        most = max(cell.devices for cell in more)
        return f"Train on {best.devices} rather than {most} devices: more of them did not help here."
    way = f"{best.summary.strategy}/{best.summary.launcher} in {best.summary.precision}"
    if best.summary.base == "single":
        return f"{way} trains on one device only: add other strategies, and larger topologies, to know what more would bring."
    return f"{way} was not measured on more than {counted(best.devices, 'device')}: add larger topologies, or have them predicted."


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
