"""All advice on one experiment: each question's sentence, and first what they come to."""

from __future__ import annotations

from collections.abc import Sequence

from dpscale.advice.causes import causes
from dpscale.advice.cells import Cell, Tables, cells, evidence_of, reasons_of, trainings, unmeasured
from dpscale.advice.control import EXPLAIN, by_control
from dpscale.advice.cost import device_hours, money
from dpscale.advice.efficiency import efficiency
from dpscale.advice.energy import energy
from dpscale.advice.fastest import by_time, fastest
from dpscale.advice.least import MAKE_MORE, NARROWER, SET_REPEATS
from dpscale.advice.peak import Flops, share_of_peak
from dpscale.advice.prediction import prediction
from dpscale.advice.sentences import PARTLY, WITHHELD, Sentence
from dpscale.advice.settings import AdviceConfig

READS = ("summary", "timings", "comparisons", "causes", "stragglers", "monitor", "prediction")  # tables


def advise(tables: Tables, settings: AdviceConfig, flops: Flops | None = None) -> list[Sentence]:
    """In the order of QUESTIONS; several of the causes, of cells on the most devices first.

    Args:
        tables: READS, by name.
        flops: operations of the model, where a peak is there to hold them against.
    """
    measured = cells(tables)
    found = trainings(measured)
    absent = unmeasured(tables, measured)
    ranking = by_time(found)
    best = None if ranking is None else ranking.best.cell
    answers = [
        fastest(found, absent),
        efficiency(found, absent, settings.least_efficiency),
        device_hours(found, absent, ranking),
        money(found, absent, settings),
        energy(found, absent, tables["monitor"]),
        share_of_peak(found, absent, best, flops, settings),
        *limits(measured, tables),
        prediction(tables["prediction"], found),
    ]
    return [in_short(answers, absent), *answers]


def limits(measured: Sequence[Cell], tables: Tables) -> list[Sentence]:
    """Of explained steps, and of cells beside a control; a withheld one if there is neither."""
    explained = causes(tables)
    found = [*explained, *by_control(measured, tables["comparisons"], {said.cell for said in explained})]
    if found:
        return found
    nothing = Sentence(
        about="cause",
        support=WITHHELD,
        verdict="What limits it can't be said: no cell on several devices explains its steps, or has a control beside it.",
        missing="explain: true, or the strategy independent",
        next_steps=(EXPLAIN,),
    )
    return [nothing]


def in_short(answers: Sequence[Sentence], absent: Sequence[Cell]) -> Sentence:
    """Verdict: speed and efficiency. Why: what limits the cell that is fastest, and those on the most devices. Next: what
    these ask for."""
    speed, devices = (next(said for said in answers if said.about == about) for about in ("fastest", "efficiency"))
    causes_of = [said for said in answers if said.about == "cause"]
    limit = [said for said in causes_of if said.cell == speed.cell or said is causes_of[0]]
    used = [speed, devices, *reversed(limit)]
    steps = list(dict.fromkeys(step for said in used for step in said.next_steps))
    if MAKE_MORE in steps and (NARROWER in steps or any(step.startswith(SET_REPEATS) for step in steps)):
        steps.remove(MAKE_MORE)  # these repeat its cells, too
    return Sentence(
        about="in_short",
        support=used[0].support if len({said.support for said in used}) == 1 else PARTLY,
        verdict=_joined([speed.verdict, devices.verdict], " "),
        why=_joined([*(said.verdict for said in reversed(limit)), reasons_of(absent)], " "),
        next_steps=tuple(steps),
        missing=_joined([said.missing for said in used], "; "),
        cell=speed.cell,
        follows_from=list(dict.fromkeys([*(row for said in used for row in said.follows_from), *evidence_of(absent)])),
        warnings=tuple(dict.fromkeys(warning for said in used for warning in said.warnings)),
    )


def _joined(parts: Sequence[str], separator: str) -> str:
    """Each that says something once."""
    return separator.join(dict.fromkeys(filter(None, parts)))
