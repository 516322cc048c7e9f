"""What the prediction adds: what devices would bring that were not measured, and how far it was right where they were."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpscale.advice.cells import INTERVAL, Cell
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.words import amount, counted, number
from dpscale.statistics import Estimate
from dpscale.tables.cells import name_of
from dpscale.tables.prediction import PARTS_MODEL

if TYPE_CHECKING:
    import pandas as pd

ONE_LAUNCH = "80 % interval of one launch"  # what low and high of a prediction are
COLUMNS = ("predicted_epoch_time_s", "predicted_epoch_time_s_low", "predicted_epoch_time_s_high", "verdict")
HIT, MISS = "hit", "miss"  # verdicts on what was measured
LIMITED_BY = {
    "compute": "computation",
    "contention": "contention",
    "compression": "the compression of gradients",
    "stretch": "the exchange of gradients",
    "exposed_communication": "the exchange of gradients",
    "straggler": "the slowest rank of each step",
    "fixed costs per epoch": "fixed costs of an epoch",
}


def prediction(table: pd.DataFrame, fastest: Cell | None) -> Sentence:
    """`fastest`: of the measured cells, by the medians."""
    said = Sentence(
        about="prediction", support=WITHHELD, verdict="What more devices would bring can't be said", unit="s"
    )
    rows = table[(table.model == PARTS_MODEL) & table.current.astype(bool) & ~table.calibrating.astype(bool)]
    if rows.empty:
        return replace(
            said,
            verdict=f"{said.verdict}: nothing is predicted.",
            missing="a prediction: prediction.calibrate_up_to",
            next_steps=(
                "Set explain: true and prediction.calibrate_up_to, and in prediction.topologies what is not at hand.",
            ),
        )
    names = tuple(name_of(row) for row in rows.itertuples())
    said = replace(said, follows_from=[Evidence("prediction.csv", COLUMNS, names)])
    judged = rows[rows.verdict.isin([HIT, MISS])]
    hits = int((judged.verdict == HIT).sum())
    record = _record(judged, hits)
    if hits * 2 < len(judged):
        return replace(
            said,
            verdict=f"{said.verdict}: most predictions that were measured since were wrong.",
            why=record,
            missing="predictions that come true",
            next_steps=("Calibrate on more devices (prediction.calibrate_up_to), or measure what is to be known.",),
        )
    ahead = rows[~rows.verdict.isin([HIT, MISS])]
    if ahead.empty:
        return replace(
            said,
            support=SHOWN,
            verdict="All that is predicted was measured since, so the prediction adds how far it can be trusted.",
            why=record,
            next_steps=("Name topologies that are not at hand in prediction.topologies, or ask scripts/what_if.py.",),
        )
    best = ahead.sort_values("predicted_epoch_time_s", kind="stable").iloc[0]
    return _of_best(said, best, record, fastest)


def _record(judged: pd.DataFrame, hits: int) -> str:
    """How far it was right."""
    if judged.empty:
        return "None of its predictions was measured, so here it is untested."
    errors = judged.error_percent
    if len(judged) == 1:
        held = "held" if hits else "did not hold"
        return f"The one of its predictions that was measured {held}: an error of {number(errors.iloc[0], 1)} %."
    return (
        f"Of its {len(judged)} predictions that were measured {hits} held: errors from "
        f"{number(errors.min(), 1)} to {number(errors.max(), 1)} %."
    )


def _of_best(said: Sentence, best: Any, record: str, fastest: Cell | None) -> Sentence:
    """Of the topology that is predicted to be fastest, of those that were not measured."""
    takes = Estimate(
        best.predicted_epoch_time_s, best.predicted_epoch_time_s_low, best.predicted_epoch_time_s_high, ONE_LAUNCH
    )
    said = replace(said, cell=name_of(best), estimate=takes)
    what = f"{name_of(best)} would take {amount(takes, 's')} for an epoch"
    why = f"Predicted efficiency {number(100 * best.scaling_efficiency, 0)} %, limited by {LIMITED_BY[best.limited_by]}. {record}"
    measured = None if fastest is None else fastest.estimate("epoch_time_s")
    if fastest is None or measured is None:
        return replace(said, support=PARTLY, verdict=f"{what}.", why=why, missing="a measured cell to compare with")
    rival = f"{fastest.name}, which took the least of what was measured"
    evidence = [*said.follows_from, Evidence("summary.csv", ("epoch_time_s",), (fastest.name,))]
    said = replace(said, why=why, follows_from=evidence)
    if measured.spread != INTERVAL or (takes.low <= measured.high and measured.low <= takes.high):
        return replace(
            said,
            support=PARTLY,
            verdict=f"{what}; whether that is less than {fastest.name} is open, which took {amount(measured, 's')}.",
            missing=f"launches: 6 of {fastest.name}" if measured.spread != INTERVAL else f"launches of {name_of(best)}",
            next_steps=(f"Measure {best.nodes}x{best.devices_per_node} to know.",),
        )
    if takes.high < measured.low:
        return replace(
            said,
            support=SHOWN,
            verdict=f"{what}, {number(measured.value / takes.value)} times as fast as {rival}.",
            next_steps=(
                f"If the time is worth the devices, add {best.nodes}x{best.devices_per_node} to the topologies.",
            ),
        )
    return replace(
        said,
        support=SHOWN,
        verdict=f"More devices would not be faster: at best, {what}, {number(takes.value / measured.value)} times as much as {rival}.",
        next_steps=(f"Stay with {counted(fastest.devices, 'device')}.",),
    )
