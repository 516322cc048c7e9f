"""What is in no result and why, and what was not measured and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpscale.methods.study import Section, Study, Table
from dpscale.record import Record
from dpscale.tables.cells import name_of
from dpscale.words import counted, listed

RESUMED = "resumed: "  # how train.py begins to say why the monitor has no sample of a training that went on


def excluded(study: Study) -> Section:
    return Section("What was excluded, and why", [list(_excluded(study))])


def _excluded(study: Study) -> Iterator[str]:
    yield "Warm-up, start-up, evaluations, checkpoints and compilation are in no time of training; each is timed apart."
    yield "No launch that was measured is left out of any result, outliers included."
    again = [record for record in study.measured if len(record.launch.get("attempts", [])) > 1]
    if resumed := [record for record in again if _went_on(record)]:
        yield (
            f"{counted(len(resumed), 'launch', 'launches')} took more than one attempt after an interruption, and went on from a checkpoint: "
            f"the epoch that was cut counts as warm-up ({listed(record.trial.id for record in resumed)})."
        )
    if anew := [record for record in again if not _went_on(record)]:
        yield (
            f"{counted(len(anew), 'launch', 'launches')} took more than one attempt after an interruption, and began anew: nothing of an "
            f"earlier attempt is in any result ({listed(record.trial.id for record in anew)})."
        )
    skipped = sum(record.skipped_steps or 0 for record in study.measured)
    if skipped:
        yield f"Gradient scalers skipped {counted(skipped, 'step')} whose gradients were not finite; their time counts."


def _went_on(record: Record) -> bool:
    """From a checkpoint, as the ranks said themselves. Not each that was interrupted does: trainings by steps have none, nor has
    PowerSGD, nor has one that was cut before the first."""
    return any(reason.startswith(RESUMED) for node in record.monitor_absent for reason in node.values())


def not_measured(study: Study) -> Section:
    """Every planned cell without a number; kinds of measurements that are not there; and what the experiment did not ask for."""
    cells = Table(("what", "why"), [*_cells(study), *_parts(study)])
    return Section("What was not measured, and why", [list(_not_asked_for(study))], [cells])


def _cells(study: Study) -> Iterator[tuple[str, str]]:
    summary = study.tables["summary"]
    for cell in summary[summary.status != "ok"].itertuples():
        yield name_of(cell), f"{cell.status}: {cell.reason}"
    good = summary[summary.status == "ok"]
    for cell in good[good.reason.fillna("") != ""].itertuples():
        yield name_of(cell), str(cell.reason)


def _parts(study: Study) -> Iterator[tuple[str, str]]:
    """Measurements beside the times, a row for each reason."""
    collectives = study.tables["collectives"]
    absent = collectives[collectives.status != "ok"]
    yield from _by_reason(
        "collectives",
        [(f"{row.operation} on {row.nodes}x{row.devices_per_node}", row) for row in absent.itertuples()],
        "reason",
    )
    causes = study.tables["causes"]
    without = causes[causes.unexplained_because.notna()]
    if any(trial.explain for trial in study.trials):
        yield from _by_reason("causes", [(name_of(row), row) for row in without.itertuples()], "unexplained_because")
    monitor = study.tables["monitor"]
    unseen = monitor[monitor.reason.notna()]
    kinds = {
        "package": "energy of CPU packages",
        "gpu": "GPUs over time",
        "rank": "ranks over time",
        "machine": "other processes",
    }
    for kind, rows in unseen.groupby("kind", sort=False):
        yield from _by_reason("", [(kinds.get(str(kind), str(kind)), row) for row in rows.itertuples()], "reason")


def _by_reason(what: str, rows: list[tuple[str, Any]], column: str) -> Iterator[tuple[str, str]]:
    reasons: dict[str, list[str]] = {}
    for name, row in rows:
        names = reasons.setdefault(str(getattr(row, column)), [])
        if name not in names:
            names.append(name)
    for reason, names in reasons.items():
        yield f"{what}: {listed(names)}" if what else listed(names), reason


def _not_asked_for(study: Study) -> Iterator[str]:
    """By the configuration."""
    settings = study.settings
    absent = {
        "evaluations (evaluate)": settings.evaluate,
        "causes of a step's time (explain)": any(trial.explain for trial in study.trials),
        "collectives alone (collectives.operations)": bool(settings.collectives.operations),
        "predictions (prediction.calibrate_up_to)": settings.prediction.calibrate_up_to is not None,
        "a placebo, which would tell the noise floor (placebo)": settings.placebo,
        "samples of devices over time (monitor_interval_s)": settings.monitor_interval_s is not None,
    }
    names = [name for name, is_there in absent.items() if not is_there]
    if names:
        yield f"The experiment did not ask for {listed(names)}."
