"""Rows that the monitor's samples give: what each rank, GPU and CPU package used, and its course over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dpscale import metrics
from dpscale.monitoring import usage
from dpscale.phases import STARTUP_PARTS
from dpscale.record import RankFacts, Record, Window
from dpscale.tables.schema import Measured, identity
from dpscale.tables.schema.cells import CELL

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

Samples = Mapping[str, "pd.DataFrame"]  # trial's id -> rows of its monitor.parquet
POINTS = 300  # of a line over time: a table is for drawing, all samples are in monitor.parquet
SHOWN = {"memory_MiB": "memory_bytes", "power_w": "power_w", "sm_clock_MHz": "sm_clock_MHz"}
SHOWN |= {"temperature_C": "temperature_C"}  # column of the timeline -> of the samples


def monitor(measured: Sequence[Measured], samples: Samples) -> list[dict[str, Any]]:
    return [
        {**identity(record.trial, CELL), "repeat": record.trial.repeat, **row}
        for _, record, _ in measured
        if record is not None and record.status == "ok"
        for row in _of_trial(record, samples.get(record.trial.id))
    ]


def _of_trial(record: Record, samples: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    for facts in record.ranks:
        yield _of_rank(record, facts, samples_of(samples, facts, "rank", str(facts.rank), record))
        for uuid in facts.device_uuids:
            yield _of_gpu(record, facts, uuid, samples_of(samples, facts, "gpu", uuid, record))
    for node in range(record.trial.nodes):
        windows = metrics.windows_of_node(record, node)
        yield {"node": node, "kind": "machine", "name": "all processes", **_others(record, node)}
        packages = _of_node(samples, node, "package")
        if not packages:
            yield {"node": node, "kind": "package", "name": "", "reason": _why(record, node, "package")}
        for name, found in packages:
            yield {"node": node, "kind": "package", "name": name, **_energy(record, windows, found)}
        for name, found in _of_node(samples, node, "monitor"):
            times_s, used_s = found.time_s.to_numpy(), found.cpu_time_s.to_numpy()
            used = usage.counted(times_s, used_s, windows)
            percent = None if used is None else _percent(used, windows)
            yield {"node": node, "kind": "monitor", "name": name, "cpu_percent": percent}


def samples_of(
    samples: pd.DataFrame | None, facts: RankFacts, kind: str, name: str, record: Record
) -> pd.DataFrame | None:
    """Samples of one rank or GPU; None without any."""
    node = facts.rank // record.trial.ranks_per_node
    return next((found for known, found in _of_node(samples, node, kind) if known == name), None)


def _of_node(samples: pd.DataFrame | None, node: int, kind: str) -> list[tuple[str, pd.DataFrame]]:
    """(name, its samples in order of time) of one kind on one node."""
    if samples is None:
        return []
    mine = samples[(samples.node == node) & (samples.kind == kind)].sort_values("time_s", kind="stable")
    return [(str(name), found) for name, found in mine.groupby("name", sort=False)]


def _why(record: Record, node: int, *kinds: str) -> str:
    """Why there is no sample of the first of these kinds of which a reason is known."""
    if record.trial.monitor_interval_s is None:
        return "no monitor: monitor_interval_s is null"
    absent = record.monitor_absent[node] if node < len(record.monitor_absent) else {}
    return next((absent[kind] for kind in kinds if kind in absent), "no sample was taken")


def _of_rank(record: Record, facts: RankFacts, found: pd.DataFrame | None) -> dict[str, Any]:
    node = facts.rank // record.trial.ranks_per_node
    cpu_percent = _percent(facts.cpu_time_s, metrics.timed_windows(record, facts.rank))
    row = {
        "node": node,
        "kind": "rank",
        "name": str(facts.rank),
        "rank": facts.rank,
        "cpu_percent": cpu_percent,
        "utilization_percent": cpu_percent / facts.threads,
        "peak_memory_MiB": facts.peak_memory_bytes / metrics.MIB,
        "proportional_memory_MiB": _mib(facts.proportional_memory_bytes),
        "affinity": _ranges(facts.affinity),
        "shares_cpus_with": ", ".join(map(str, metrics.ranks_on_the_same_cpus(record, facts))),
    }
    if found is None:
        return {**row, "reason": _why(record, node, "rank")}
    inside = found[usage.inside(found.time_s.to_numpy(), metrics.timed_windows(record, facts.rank))]
    return {**row, "samples": len(inside), "memory_MiB": _mib(_mean(inside.memory_bytes)), **_too_short(inside)}


def _of_gpu(record: Record, facts: RankFacts, uuid: str, found: pd.DataFrame | None) -> dict[str, Any]:
    node = facts.rank // record.trial.ranks_per_node
    row = {"node": node, "kind": "gpu", "name": uuid, "rank": facts.rank}
    if found is None:
        return {**row, "reason": _why(record, node, uuid, "gpu")}
    windows = metrics.timed_windows(record, facts.rank)
    inside = found[usage.inside(found.time_s.to_numpy(), windows)]
    processes = inside.processes.max()
    reasons = inside.throttle_reasons.dropna().tolist()
    return {
        **row,
        "utilization_percent": _mean(inside.utilization_percent),
        "memory_MiB": _mib(_mean(inside.memory_bytes)),
        "sm_clock_MHz": _mean(inside.sm_clock_MHz),
        "memory_clock_MHz": _mean(inside.memory_clock_MHz),
        "temperature_C": None if inside.empty else inside.temperature_C.max(),
        "throttle_reasons": usage.throttling(reasons) if reasons else None,
        "other_processes": None if processes != processes else max(0, processes - 1),
        **_energy(record, windows, found),
        **_too_short(inside),
    }


def _energy(record: Record, windows: Sequence[Window], found: pd.DataFrame) -> dict[str, Any]:
    """Power and energy of a GPU or CPU package: by its counter, and the lowest before the first step."""
    times_s, energy_j = found.time_s.to_numpy(), found.energy_j.to_numpy()
    if found.energy_range_j.notna().all():
        energy_j = usage.unwrapped(energy_j, found.energy_range_j.iloc[0])
    power_w = found.power_w.to_numpy()
    if found.power_w.isna().all():
        power_w = usage.rates(times_s, energy_j)
    first_step_s = min(start for segment in record.segments for start, _ in segment.windows_s)
    used_j = usage.counted(times_s, energy_j, windows)
    inside = usage.inside(times_s, windows)
    return {
        "samples": int(inside.sum()),
        "power_w": _nanmean(power_w[inside]),
        "idle_power_w": usage.lowest_before(times_s, power_w, first_step_s),
        "energy_per_epoch_J": None if used_j is None else used_j * metrics.epochs_per_timed_part(record),
    }


def _too_short(inside: pd.DataFrame) -> dict[str, str]:
    return (
        {"reason": "no sample fell into the timed steps: measure longer, or lower monitor_interval_s"}
        if inside.empty
        else {}
    )


def _others(record: Record, node: int) -> dict[str, Any]:
    others = metrics.others_cpu_percents(record)
    return {"others_cpu_percent": others[node]} if node < len(others) else {"reason": "not counted"}


def timeline(measured: Sequence[Measured], samples: Samples) -> list[dict[str, Any]]:
    """Of the first repeat of each cell that was measured."""
    rows: list[dict[str, Any]] = []
    cells: set[str] = set()
    for _, record, _ in measured:
        if record is None or record.status != "ok" or record.trial.cell in cells or record.trial.id not in samples:
            continue
        cells.add(record.trial.cell)
        place = {**identity(record.trial, CELL), "repeat": record.trial.repeat}
        for node in range(record.trial.nodes):
            begin_s = min(start for start, _ in metrics.windows_of_node(record, node, warmup=True))
            for kind in ("rank", "gpu", "package"):
                for name, found in _of_node(samples[record.trial.id], node, kind):
                    line = {**place, "node": node, "kind": kind, "name": name}
                    rows += [{**line, **point} for point in _points(record, kind, name, found, begin_s)]
    return rows


def _points(record: Record, kind: str, name: str, found: pd.DataFrame, begin_s: float) -> Iterator[dict[str, Any]]:
    """A line over time, of no more than POINTS points: the means of samples that follow each other."""
    assert record.trial.monitor_interval_s is not None
    found = found[usage.apart(found.time_s.to_numpy(), record.trial.monitor_interval_s / 2)]
    times_s = found.time_s.to_numpy()
    values = {column: found[source].to_numpy(dtype=float) for column, source in SHOWN.items()}
    values["memory_MiB"] = values["memory_MiB"] / metrics.MIB
    if kind == "rank":
        threads = record.ranks[int(name)].threads
        values["utilization_percent"] = 100 * usage.rates(times_s, found.cpu_time_s.to_numpy()) / threads
    elif kind == "gpu":
        values["utilization_percent"] = found.utilization_percent.to_numpy(dtype=float)
    elif found.power_w.isna().all():
        values["power_w"] = usage.rates(times_s, found.energy_j.to_numpy())
    together = -(-len(times_s) // POINTS)
    for _, group in groupby(range(len(times_s)), lambda index: index // together):
        chosen = list(group)
        means = {column: _nanmean(array[chosen]) for column, array in values.items()}
        yield {"time_s": float(times_s[chosen].mean()) - begin_s, **means}


def startup(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """A row per rank of every trial."""
    return [
        {
            **identity(record.trial, CELL),
            "repeat": record.trial.repeat,
            "rank": facts.rank,
            **{name: facts.startup_s.get(name) for name in STARTUP_PARTS},
            "first_step_s": first_step_s,
        }
        for _, record, steps in measured
        if record is not None and record.status == "ok" and steps is not None
        for facts, first_step_s in zip(record.ranks, metrics.first_step_s(steps), strict=True)
    ]


def _percent(used_s: float, windows: Sequence[Window]) -> float:
    return 100 * used_s / sum(end - start for start, end in windows)


def _mib(value: float | None) -> float | None:
    return None if value is None else value / metrics.MIB


def _mean(column: pd.Series) -> float | None:
    return None if column.isna().all() else float(column.mean())


def _nanmean(values: np.ndarray) -> float | None:
    known = values[values == values]
    return float(known.mean()) if len(known) else None


def _ranges(cpus: Sequence[int]) -> str:
    """0-3,8 for 0, 1, 2, 3, 8."""
    runs = [[cpu for _, cpu in run] for _, run in groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
