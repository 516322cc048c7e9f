"""Rows that say what was predicted, by the measured parts and by simpler laws, and what came true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpscale import statistics
from dpscale.forecasting.ledger import LAST_LINE, Entry, Launch, Ledger
from dpscale.scaling_model.calibration import INTERVALS_PERCENT
from dpscale.tables.cells import measured
from dpscale.tables.schema import frame

if TYPE_CHECKING:
    import pandas as pd

PARTS_MODEL = "measured parts"
NARROW, WIDE = map(str, INTERVALS_PERCENT)
NOT_COMPARABLE = "not comparable: it was written before the ledger kept of which configuration a prediction is"


def make_table(experiment: str, ledger: Ledger) -> pd.DataFrame:
    """The table `prediction` of one experiment: each prediction that was ever made beside what was measured of it."""
    latest = {entry.cell: entry for entry in ledger.predictions}
    last_line = ledger.digests[-1] if ledger.digests else None
    rows = []
    for entry in ledger.predictions:
        shared = {"experiment": experiment, "current": entry is latest[entry.cell], LAST_LINE: last_line}
        rows += [{**shared, **row} for row in _rows(entry, ledger.held_against(entry))]
    return frame("prediction", rows)


def launches_of(timings: pd.DataFrame) -> Iterator[Launch]:
    """What was measured, for the ledger."""
    row: Any
    for row in measured(timings).itertuples():
        yield Launch(
            started_at=row.started_at,
            configuration=row.configuration,
            strategy=row.strategy,
            launcher=row.launcher,
            nodes=int(row.nodes),
            devices_per_node=int(row.devices_per_node),
            repeat=int(row.repeat),
            epoch_time_s=float(row.epoch_time_s),
        )


def _rows(entry: Entry, launches: Sequence[Launch]) -> Iterator[dict[str, Any]]:
    epochs_s = [launch.epoch_time_s for launch in launches]
    shared: dict[str, Any] = {
        **{
            name: getattr(entry, name)
            for name in ("strategy", "base", "launcher", "nodes", "devices_per_node", "devices", "predicted_at", "code")
        },
        "calibrated_up_to": entry.calibrated_up_to,
        "calibrating": entry.calibrating,
        "in_advance": None if entry.configuration is None else _in_advance(entry, launches),
        "launches": len(epochs_s),
    }
    if epochs_s:
        found = statistics.estimate(epochs_s)
        shared |= {
            "measured_epoch_time_s": found.value,
            "measured_epoch_time_s_low": found.low,
            "measured_epoch_time_s_high": found.high,
            "spread": found.spread,
        }
    narrow, wide = entry.intervals[NARROW], entry.intervals[WIDE]
    row = shared | {
        "model": PARTS_MODEL,
        "predicted_epoch_time_s": entry.epoch_time_s,
        "predicted_epoch_time_s_low": narrow.low,
        "predicted_epoch_time_s_high": narrow.high,
        "predicted_95_low_s": wide.low,
        "predicted_95_high_s": wide.high,
        "scaling_efficiency": entry.scaling_efficiency,
        "steps": entry.steps,
        **entry.parts,
        "epoch_fixed_s": entry.epoch_fixed_s,
        "limited_by": entry.limited_by,
        "limited_by_share": entry.limited_by_share,
        "verdict": "not measured yet" if entry.configuration else NOT_COMPARABLE,
    }
    if entry.calibrating:
        row["verdict"] = "calibrated from"
    elif epochs_s:
        middle = shared["measured_epoch_time_s"]
        row |= {
            "launches_inside": sum(narrow.low <= epoch_s <= narrow.high for epoch_s in epochs_s),
            "verdict": "hit" if narrow.low <= middle <= narrow.high else "miss",
        }
    yield row | _error(entry.epoch_time_s, epochs_s)
    for law, epoch_time_s in entry.baselines.items():
        yield shared | {"model": law, "predicted_epoch_time_s": epoch_time_s, **_error(epoch_time_s, epochs_s)}


def _in_advance(entry: Entry, launches: Sequence[Launch]) -> bool:
    return not entry.calibrating and all(launch.began_after(entry) for launch in launches)


def _error(predicted_s: float, epochs_s: list[float]) -> dict[str, float]:
    if not epochs_s:
        return {}
    measured_s = statistics.estimate(epochs_s).value
    return {"error_percent": 100 * (predicted_s - measured_s) / measured_s}
