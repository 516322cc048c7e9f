"""What the prediction adds: what devices would bring that were not measured, and how far it was right where they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpscale.advice.cells import INTERVAL, Cell
from dpscale.advice.fastest import by_time
from dpscale.advice.least import MAKE_MORE
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.words import amount, cells_named, number
from dpscale.scaling_model.losses import NOTHING
from dpscale.statistics import Estimate
from dpscale.tables.cells import name_of
from dpscale.tables.prediction import PARTS_MODEL
from dpscale.words import counted, listed

if TYPE_CHECKING:
    import pandas as pd

ONE_LAUNCH = "80 % interval of one launch"  # what low and high of a prediction are
COLUMNS = ("predicted_epoch_time_s", "predicted_epoch_time_s_low", "predicted_epoch_time_s_high", "verdict")
HIT, MISS = "hit", "miss"  # verdicts on what was measured
LIMITED_BY = {
    "contention": "contention",
    "compression": "the compression of gradients",
    "stretch": "the exchange of gradients",
    "exposed_communication": "the exchange of gradients",
    "straggler": "the slowest rank of each step",
    "fixed_cost_per_step": "what a step costs whatever its batch",
    "incomplete_last_step": "a last step of each epoch that lacks samples",
    "fixed_cost_per_epoch": "fixed costs of an epoch",
    NOTHING: "nothing to speak of",
}


def prediction(table: pd.DataFrame, found: Sequence[Cell]) -> Sentence:
    """Of measured cells that train one model."""
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
    record = _record(judged)
    if _mostly_wrong(judged):
        return _of_wrong(said, record)
    ahead = rows[~rows.verdict.isin([HIT, MISS])]
    if ahead.empty:
        return replace(
            said,
            support=SHOWN,
            verdict="All that is predicted was measured, so the prediction adds how far it can be trusted.",
            why=record,
            next_steps=("Name topologies that are not at hand in prediction.topologies, or ask scripts/what_if.py.",),
        )
    fastest = _fastest(found)
    rivals = [_rival(row, found) for row in ahead.itertuples()]
    least_devices = [0 if rival is None else rival.devices for rival in rivals]
    more = ahead[ahead.devices > least_devices]
    if more.empty:
        names = tuple(dict.fromkeys(rival.name for rival in rivals if rival is not None))
        return replace(
            said,
            verdict=f"{said.verdict}: nothing is predicted on more devices than {cells_named(names)} used, the fastest of its strategy.",
            follows_from=_with(said.follows_from, *names),
            why=record,
            missing="predictions on more devices: prediction.topologies",
            next_steps=("Name larger topologies in prediction.topologies.",),
        )
    like = [fastest is not None and _way(row) == _way(fastest.summary) for row in more.itertuples()]
    alike = more[like] if any(like) else more
    best = alike.sort_values("predicted_epoch_time_s", kind="stable").iloc[0]
    rival = _rival(best, found)
    mine = judged[np.array([_way(row) == _way(best) for row in judged.itertuples()], dtype=bool)]
    record = _record(mine)
    if _mostly_wrong(mine):
        return _of_wrong(said, record)
    if fastest is not None and rival is not None and rival is not fastest:
        record = f"Of all that was measured {fastest.name} took the least. {record}"
        said = replace(said, follows_from=_with(said.follows_from, fastest.name))
    devices = sorted({row["devices"] for _, row in alike.iterrows() if _way(row) == _way(best)})
    return _of_best(said, best, devices, record, rival)


def _mostly_wrong(judged: pd.DataFrame) -> bool:
    return _hits(judged) * 2 < len(judged)


def _hits(judged: pd.DataFrame) -> int:
    return int((judged.verdict == HIT).sum())


def _of_wrong(said: Sentence, record: str) -> Sentence:
    return replace(
        said,
        verdict=f"{said.verdict}: most predictions that were measured were wrong.",
        why=record,
        missing="predictions that come true",
        next_steps=("Calibrate on more devices (prediction.calibrate_up_to), or measure what is to be known.",),
    )


def _with(evidence: Sequence[Evidence], *measured: str) -> list[Evidence]:
    """And how long an epoch took in measured cells."""
    return [*evidence, Evidence("summary.csv", ("epoch_time_s", "spread"), measured)]


def _rival(row: Any, found: Sequence[Cell]) -> Cell | None:
    """The fastest that was measured of what is predicted."""
    return _fastest([cell for cell in found if _way(cell.summary) == _way(row)])


def _way(row: Any) -> str:
    """The strategy, which has one precision, and its launcher: only with the same is a prediction compared."""
    return f"{row.strategy}/{row.launcher}"


def _fastest(found: Sequence[Cell]) -> Cell | None:
    """By the medians."""
    ranking = by_time(found)
    return None if ranking is None else ranking.best.cell


def _record(judged: pd.DataFrame) -> str:
    """How far it was right."""
    if judged.empty:
        return "None of its predictions was measured, so here it is untested."
    errors, hits = judged.error_percent, _hits(judged)
    if len(judged) == 1:
        held = "held" if hits else "did not hold"
        return f"The one of its predictions that was measured {held}: an error of {number(errors.iloc[0], 1)} %."
    return (
        f"Of its {len(judged)} predictions that were measured {hits} held: errors from "
        f"{number(errors.min(), 1)} to {number(errors.max(), 1)} %."
    )


def _of_best(said: Sentence, best: Any, devices: Sequence[int], record: str, fastest: Cell | None) -> Sentence:
    """Of the topology that is predicted to be fastest, of those that were not measured, on so many devices."""
    takes = Estimate(
        best.predicted_epoch_time_s, best.predicted_epoch_time_s_low, best.predicted_epoch_time_s_high, ONE_LAUNCH
    )
    said = replace(said, cell=name_of(best), estimate=takes)
    what = f"{name_of(best)} would take {amount(takes, 's')} for an epoch"
    limit = LIMITED_BY.get(best.limited_by, best.limited_by)  # a ledger of an earlier version has others
    why = f"Predicted efficiency {number(100 * best.scaling_efficiency, 0)} %, limited by {limit}. {record}"
    measured = None if fastest is None else fastest.estimate("epoch_time_s")
    if fastest is None or measured is None:
        return replace(
            said,
            support=PARTLY,
            verdict=f"{what}.",
            why=why,
            missing=f"a measured cell of {_way(best)} to compare with",
            next_steps=(f"Measure {_way(best)}, to compare with.",),
        )
    rival = f"{fastest.name}, which took the least of what was measured of {_way(best)}"
    said = replace(said, why=why, follows_from=_with(said.follows_from, fastest.name))
    if measured.spread != INTERVAL or (takes.low <= measured.high and measured.low <= takes.high):
        return replace(
            said,
            support=PARTLY,
            verdict=f"{what}; whether that is less than {fastest.name} is open, which took {amount(measured, 's')}.",
            missing=f"launches: 6 of {fastest.name}" if measured.spread != INTERVAL else f"launches of {name_of(best)}",
            next_steps=(
                MAKE_MORE if measured.spread != INTERVAL else f"Measure {best.nodes}x{best.devices_per_node} to know.",
            ),
        )
    if takes.high < measured.low:
        return replace(
            said,
            support=SHOWN,
            verdict=f"{what}, {_times(measured, takes)} as fast as {rival}.",
            next_steps=(
                f"If the time is worth the devices, add {best.nodes}x{best.devices_per_node} to the topologies.",
            ),
        )
    return replace(
        said,
        support=SHOWN,
        verdict=f"On {listed(devices)} devices {_way(best)} would not be faster: {what}, {_times(takes, measured)} as much as "
        f"{rival}.",
        next_steps=(f"Stay with {counted(fastest.devices, 'device')}.",),
    )


def _times(one: Estimate, other: Estimate) -> str:
    """A ratio of the two, with ends for the worst case of both."""
    ratio = Estimate(
        one.value / other.value, one.low / other.high, one.high / other.low, "both intervals at their ends"
    )
    return amount(ratio, "times")
