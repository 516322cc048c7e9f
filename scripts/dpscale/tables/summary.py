"""Rows that a cell gives: medians over its repeats with their intervals, and how it compares with its base."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpscale import metrics, statistics
from dpscale.tables.cells import Speed, cells_of, floats, measured, name_of
from dpscale.tables.drift import drift_warning
from dpscale.tables.placebo import placebo_of
from dpscale.tables.schema import frame
from dpscale.tables.schema.cells import AMOUNTS, ESTIMATED, IDENTITY, RATES
from dpscale.trial import LARGEST, PLACEBO

if TYPE_CHECKING:
    import pandas as pd

SHARE = re.compile(r"\d[\d.]*(?= %)")  # in a warning: launches differ in it
PLACE = re.compile(r" \([^()]*\)$")


def summarize(timings: pd.DataFrame, comparisons: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, from one row per trial, and what the pairs of cells say of the placebo."""
    cells = cells_of(timings)
    drift, placebo = drift_warning(timings), placebo_of(comparisons)
    on_one_device = [cell for cell in cells if _may_be_base(cell)]
    rows = []
    for cell in cells:
        row = _summary(cell, _base_of(cell, on_one_device))
        if row["status"] == "ok":
            of_placebo = placebo if row["strategy"] == PLACEBO else None
            row["warnings"] += [drift, of_placebo and of_placebo.warning]
            row["noise_floor_percent"] = of_placebo and of_placebo.noise_floor_percent
        rows.append({**row, "warnings": "; ".join(filter(None, row["warnings"]))})
    return frame("summary", rows)


def _may_be_base(cell: pd.DataFrame) -> bool:
    first = cell.iloc[0]
    return bool(first.devices == 1 and first.strategy != PLACEBO and (cell.status == "ok").any())


def _base_of(cell: pd.DataFrame, on_one_device: list[pd.DataFrame]) -> pd.DataFrame | None:
    """The cell that this one is compared with: one device, all else equal.

    The plain `single` if the experiment has it in the same precision, compiled alike and in the same memory format; else
    the same strategy and launcher on one device.
    """
    me = cell.iloc[0]

    def first_of(other: pd.DataFrame) -> pd.Series:
        return other.iloc[0]

    one_device = [
        other
        for other in on_one_device
        if all(first_of(other)[fact] == me[fact] for fact in ("precision", "compile", "channels_last"))
    ]
    singles = [other for other in one_device if first_of(other).base == "single"]
    if singles:  # the plain one first: a variant with options of its own is no equal
        return min(singles, key=lambda other: first_of(other).strategy != "single")
    for other in one_device:
        if (first_of(other).strategy, first_of(other).launcher) == (me.strategy, me.launcher):
            return other
    return None


def _summary(cell: pd.DataFrame, base: pd.DataFrame | None) -> dict[str, Any]:
    """A row; its warnings are a list still."""
    good = measured(cell)
    first = (cell if good.empty else good).iloc[0]
    row = {
        **{name: first[name] for name in [*IDENTITY, "placebo_of"]},
        "repeats_planned": len(cell),
        "repeats": len(good),
        "warnings": _warnings(good),
    }
    if good.empty:
        return {**row, "status": first.status, "reason": first.reason}
    row |= {"status": "ok", "reason": ""}
    if len(good) < len(cell):
        row["reason"] = f"{len(cell) - len(good)} of {len(cell)} repeats missing"
    row |= {name: good.iloc[0][name] for name in [*AMOUNTS, "effective_precision"]}
    row["outliers"] = int(good.outlier.sum())
    for name, found in _estimates(good).items():
        row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    row["spread"] = statistics.estimate(floats(good, "epoch_time_s")).spread
    if base is not None:
        bases = measured(base)
        row["warnings"] += [_other_precision(good, bases), _other_batch(good, bases)]
    return row | _speedup(good, base)


def _estimates(good: pd.DataFrame) -> dict[str, statistics.Estimate]:
    """Of all that was measured: times, shares and bytes are medians, rates follow from the median of their time."""
    found = {
        name: statistics.estimate(values) for name in ESTIMATED if name not in RATES and (values := floats(good, name))
    }
    for rate, (amount, time) in RATES.items():
        if time in found:
            found[rate] = found[time].rate_of(good.iloc[0][amount])
    of_one_device = found["throughput_samples_per_s"].times(1 / int(good.iloc[0].devices))
    return found | {"throughput_per_device_samples_per_s": of_one_device}


def _other_precision(good: pd.DataFrame, base: pd.DataFrame) -> str | None:
    """In which dtype a cell differs from its base, of those that were seen in both."""
    mine, bases = (
        dict(item.rsplit(" ", 1) for item in cells.iloc[0].effective_precision.split(", ") if item)
        for cells in (good, base)
    )
    different = [
        f"{what} {mine[what]}, there {bases[what]}" for what in mine if bases.get(what, mine[what]) != mine[what]
    ]
    return f"other number formats than its base: {'; '.join(different)}".replace("; ", " and ") if different else None


def _other_batch(good: pd.DataFrame, base: pd.DataFrame) -> str | None:
    """Where each cell has the largest batch of its own, in what it differs from its base by plan."""
    mine, bases = (cells.iloc[0].batch_size_per_device for cells in (good, base))
    if good.iloc[0].scaling != LARGEST or mine == bases:
        return None
    return f"another batch per device than its base: {mine}, there {bases}"


def _speedup(good: pd.DataFrame, base: pd.DataFrame | None) -> dict[str, Any]:
    if base is None:
        return {"base_cell": ""}
    devices, bases = int(good.iloc[0].devices), measured(base)
    found = Speed.of(good).over(Speed.of(bases))
    if good.index.equals(bases.index):  # the base itself: 1 by definition, without a spread
        found = statistics.Estimate(1.0, 1.0, 1.0, found.spread)
    return {
        "speedup": found.value,
        "speedup_low": found.low,
        "speedup_high": found.high,
        "scaling_efficiency": metrics.scaling_efficiency(found.value, devices),
        "scaling_efficiency_low": metrics.scaling_efficiency(found.low, devices),
        "scaling_efficiency_high": metrics.scaling_efficiency(found.high, devices),
        "speedup_spread": found.spread,
        "base_cell": name_of(base.iloc[0]),
    }


def _warnings(good: pd.DataFrame) -> list[str]:
    """Each kind of warning once, as of the launch with the largest share, with the number of repeats that it came up in. Of
    one kind are texts that differ in the share only, and in what stands in brackets at the end: where it was."""
    found: dict[str, list[str]] = {}
    for text in good.warnings:
        for warning in filter(None, text.split("; ")):
            found.setdefault(SHARE.sub("#", PLACE.sub("", warning)), []).append(warning)
    return [f"{_largest(texts)} (in {len(texts)} of {len(good)} repeats)" for texts in found.values()]


def _largest(texts: Sequence[str]) -> str:
    """For all texts of a kind the one with the largest share."""
    largest = max(texts, key=lambda text: [float(share) for share in SHARE.findall(text)])
    return SHARE.sub(r"up to \g<0>", largest) if len(set(texts)) > 1 else largest
