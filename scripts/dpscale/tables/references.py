"""Published numbers beside ours, in the same quantities: somebody else's machines, never mixed with what was measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from dpscale import statistics
from dpscale.references import PRECISIONS, REFERENCES, Published, Quantity, ReferenceSet
from dpscale.tables.cells import CELL_KEY, cells_of, floats, measured, name_of
from dpscale.tables.schema import frame
from dpscale.trial import PLACEBO, Trial

if TYPE_CHECKING:
    import pandas as pd

HERE, ELSEWHERE = "ours", "published"  # whose
UTILIZATION = "utilization_percent"  # published ones are NVML's; that of a CPU is another quantity under the same name
GB = 1e9
MIB = 1024 * 1024


@dataclass(frozen=True, eq=False)
class Ours:
    """A cell of the experiment, measured or not."""

    rows: pd.DataFrame  # of timings
    monitor: pd.DataFrame  # of its GPUs

    @property
    def first(self) -> Any:
        good = measured(self.rows)
        return (self.rows if good.empty else good).iloc[0]

    @property
    def name(self) -> str:
        return name_of(self.first)

    def values(self, quantity: Quantity) -> list[float]:
        """Of its launches, in the unit of the published metric."""
        good = measured(self.rows)
        if quantity.name == UTILIZATION and self.first.device != "cuda":
            return []
        match quantity.name:
            case "mean_memory_GB":
                of_launches = self.monitor.groupby("repeat")[["memory_MiB"]].mean()
                return [MIB / GB * value for value in floats(of_launches, "memory_MiB")]
            case "peak_reserved_GiB":
                return [value / 1024 for value in floats(good, "peak_reserved_MiB")]
        return floats(good, quantity.name)

    def is_of(self, row: Published) -> bool:
        """Whether it is the same strategy on as many devices in what may be the same precision."""
        mine = self.first
        return (mine.base, mine.nodes, mine.devices) == (
            row.base,
            row.nodes,
            row.gpus,
        ) and mine.precision in PRECISIONS[row.precision]


def references(
    sets: Mapping[str, Sequence[Published]], trials: Sequence[Trial], timings: pd.DataFrame, monitor: pd.DataFrame
) -> pd.DataFrame:
    """A row for each published number of each set, and for each of ours in the same quantity, next to the cell it is of."""
    of_gpus = monitor[monitor.kind == "gpu"]
    cells = [
        Ours(cell, of_gpus[(of_gpus[CELL_KEY] == cell.iloc[0][CELL_KEY]).all(axis=1)])
        for cell in cells_of(timings[timings.strategy != PLACEBO])
    ]
    rows = [row for name, theirs in sets.items() for row in _of_set(name, theirs, cells, trials[0])]
    return frame("published", rows)


def _of_set(name: str, theirs: Sequence[Published], cells: Sequence[Ours], trial: Trial) -> Iterator[dict[str, Any]]:
    """Published cells in the order of their source, each followed by ours that is the same; the rest of ours at the end."""
    known = REFERENCES[name]
    shared = {"experiment": trial.experiment, "reference_set": name}
    quantities = {row.quantity: row.unit for row in theirs if row.quantity.measured}
    reference = next((cell for row in theirs if known.is_reference(row) for cell in cells if cell.is_of(row)), None)
    waiting = list(cells)
    together: dict[tuple, list[Published]] = {}
    for row in theirs:
        together.setdefault((row.base or row.strategy, row.precision, row.nodes, row.gpus), []).append(row)
    for group in together.values():
        mine = next((cell for cell in cells if cell.is_of(group[0])), None)
        for row in group:
            yield shared | _published(row, theirs, known) | _beside(row, mine, trial, known)
        if mine in waiting:
            waiting.remove(mine)
            yield from (shared | row for row in _ours(mine, quantities, reference, trial))
    for cell in waiting:
        yield from (shared | row for row in _ours(cell, quantities, reference, trial))


def _published(row: Published, theirs: Sequence[Published], known: ReferenceSet) -> dict[str, Any]:
    found: dict[str, Any] = {
        "whose": ELSEWHERE,
        "source": row.source,
        "system": row.system,
        "device_model": row.gpu,
        "model": row.model,
        "strategy": row.strategy,
        "precision": row.precision,
        "batch_size_per_device": row.batch_per_gpu,
        "nodes": row.nodes,
        "devices": row.gpus,
        "quantity": row.quantity.name,
        "published_as": row.metric,
        "value": row.value,
        "unit": row.unit,
        "status": "ok",
        "reason": "",
        "note": row.note,
    }
    base = [
        other
        for other in theirs
        if known.is_reference(other)
        and (other.source, other.system, other.metric) == (row.source, row.system, row.metric)
    ]
    speeds = [other.speed for other in base if other.speed is not None]
    if row.speed is not None and speeds:
        found |= {
            "reference_cell": base[0].cell,
            "speedup_vs_reference": row.speed / median(speeds),
            "differs_in": _different(
                {"strategy": row.strategy, "precision": row.precision, "devices": row.gpus},
                {"strategy": base[0].strategy, "precision": base[0].precision, "devices": base[0].gpus},
            ),
        }
    return found


def _beside(row: Published, mine: Ours | None, trial: Trial, known: ReferenceSet) -> dict[str, Any]:
    """What we measured of the same, over what is published."""
    values = mine.values(row.quantity) if mine is not None and row.quantity.measured else []
    if mine is None or not values:
        return {}
    over = statistics.estimate(values).times(1 / row.value)
    here = {
        "model": model_of(trial),
        "dataset": trial.dataset,
        "batch_size_per_device": mine.first.batch_size_per_device,
    }
    there = {"model": known.model, "dataset": known.dataset, "batch_size_per_device": row.batch_per_gpu}
    return {
        "measured_cell": mine.name,
        "measured_over_published": over.value,
        "measured_over_published_low": over.low,
        "measured_over_published_high": over.high,
        "measured_differs_in": _different(here, {name: value for name, value in there.items() if value is not None}),
    }


def _ours(
    cell: Ours, quantities: Mapping[Quantity, str], reference: Ours | None, trial: Trial
) -> Iterator[dict[str, Any]]:
    """A row for each quantity; where nothing was measured it says why."""
    first = cell.first
    for quantity, unit in quantities.items():
        row = {
            "whose": HERE,
            "source": f"{trial.experiment}: {cell.name}",
            "system": "this experiment",
            "device_model": first.device,
            "model": f"{model_of(trial)}/{trial.dataset}",
            "strategy": first.strategy,
            "precision": first.precision,
            "batch_size_per_device": first.batch_size_per_device,
            "nodes": first.nodes,
            "devices": first.devices,
            "quantity": quantity.name,
            "published_as": "",
            "unit": unit,
            "status": first.status,
            "reason": first.reason,
            "measured_cell": cell.name,
        }
        values = cell.values(quantity)
        if values:
            found = statistics.estimate(values)
            row |= {"value": found.value, "value_low": found.low, "value_high": found.high, "spread": found.spread}
            row |= {} if reference is None else _speedup(cell, reference, quantity)
        elif first.status == "ok":
            is_another = quantity.name == UTILIZATION
            row["reason"] = "of a CPU: another quantity" if is_another else f"not measured on {first.device}"
        yield row


def _speedup(cell: Ours, reference: Ours, quantity: Quantity) -> dict[str, Any]:
    """Of our cell over ours that is the set's reference."""
    mine, bases = cell.values(quantity), reference.values(quantity)
    if quantity.kind is None or not bases:
        return {}
    if quantity.kind == "rate":
        found = statistics.ratio(mine, bases)
    else:
        found = statistics.ratio(bases, mine)
        if quantity.kind == "step":
            found = found.times(cell.first.global_batch_size / reference.first.global_batch_size)
    facts = ("strategy", "precision", "devices", "global_batch_size")
    return {
        "reference_cell": reference.name,
        "speedup_vs_reference": found.value,
        "speedup_vs_reference_low": found.low,
        "speedup_vs_reference_high": found.high,
        "differs_in": _different(*({fact: one.first[fact] for fact in facts} for one in (cell, reference))),
    }


def _different(mine: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {mine[name]}, there {other[name]}" for name in other if mine[name] != other[name])


def model_of(trial: Trial) -> str:
    """Torchvision's own name of a classifier that goes by it."""
    return str(trial.model_options["name"]) if trial.model == "torchvision" else trial.model
