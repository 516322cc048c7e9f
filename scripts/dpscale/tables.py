"""Records -> tidy DataFrames. TABLES is the only table schema: name -> columns, and what each means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpscale import metrics, statistics
from dpscale.environment import CLASS_FACTS
from dpscale.errors import UserError
from dpscale.record import Record
from dpscale.trial import LARGEST, Trial

if TYPE_CHECKING:  # imported where tables are made: Snakemake reads TABLES at every start
    import pandas as pd

Measured = tuple[Trial, Record | None, metrics.Steps | None]  # a planned trial, and what there is of it

IDENTITY = {
    "experiment": "name of the experiment in the config",
    "strategy": "name of the strategy's variant in the config",
    "base": "the row of STRATEGIES behind the variant",
    "launcher": "what started the ranks",
    "nodes": "machines",
    "devices_per_node": "devices on each of them; on a CPU a device is a rank's share of the cores",
    "devices": "N = nodes x devices_per_node",
    "world_size": "processes: N, or 1 for a single-process strategy",
    "device": "cpu or cuda",
    "precision": "as asked for; effective_precision says what was seen",
    "compile": "whether torch.compile was used",
    "channels_last": "whether images were in channels-last memory format",
    "scaling": "weak: the batch per device is fixed; strong: the global batch is; largest: each cell's own, what fits",
    "batch_size_per_device": "samples per device and step; empty where a search is yet to find it",
    "global_batch_size": "samples per step over all devices; empty with it",
    "threads_per_rank": "CPU threads of each rank",
    "learning_rate": "the highest of the training: lr, scaled with the global batch where the config asks for it",
}
STATUS = {
    "status": "ok, unavailable (a need of the strategy is not met here) or missing (planned, but not measured yet)",
    "reason": "why it is not ok",
}
ESTIMATED = {
    "epoch_time_s": "training time of one epoch, in s; evaluation is apart",
    "step_time_s": "median over steps of the slowest rank's time, in s",
    "throughput_samples_per_s": "delivered training samples of all ranks per second of training",
    "evaluation_time_s": "time of one evaluation of the whole test set, in s",
    "evaluation_throughput_samples_per_s": "test samples per second",
    "epoch_with_evaluation_s": "epoch_time_s + evaluation_time_s",
    "utilization_percent": "CPU: CPU time of the ranks over ranks x threads x time; CUDA: NVML's utilisation",
    "peak_memory_MiB": "largest resident set of any rank (VmHWM), in MiB; shared pages count",
    "peak_allocated_MiB": "CUDA: largest peak of memory in tensors of any rank, in MiB",
    "peak_reserved_MiB": "CUDA: largest peak of memory held by torch's allocator of any rank, in MiB",
    "compile_time_s": "time that torch.compile took before the first step, in s; no part of any other time",
    "final_accuracy": "share of the predictions over the test set that is right at the end; empty where ranks hold different weights",
    "final_top5_accuracy": "share of them whose five likeliest classes hold the right one; empty with no more than five classes, too",
}
TIMINGS = {
    **IDENTITY,
    "repeat": "0-based; each is a launch of its own",
    **STATUS,
    **ESTIMATED,
    "effective_precision": "dtypes of weights, compute, gradients and optimiser state, as far as they were seen",
    "skipped_steps": "steps that the gradient scaler skipped, warm-up included; empty without one",
    "epoch_time_source": "measured, or computed from a number of steps",
    "data_wait_s": "mean time per step and rank until the batch was on the device, in s",
    "forward_s": "the same of the forward pass and the loss",
    "backward_s": "the same of the backward pass, with the exchange of gradients that overlaps it",
    "optimizer_s": "the same of the optimiser's update",
    "cpu_percent_per_rank": "mean CPU time of a rank over time: 100 is one core kept busy",
    "others_cpu_percent": "what other processes used of the usable CPUs meanwhile",
    "train_samples_per_epoch": "samples that the loader delivered in a timed epoch (or the timed steps), all ranks",
    "host": "host name of rank 0's machine",
    "started_at": "UTC time of the launch",
    "ended_at": "UTC time of its end",
    "warnings": "what to know before trusting this row",
}
SUMMARY = {
    **IDENTITY,
    **STATUS,
    "repeats_planned": "launches that the config asks for",
    "repeats": "launches that were measured",
    **{
        column: text
        for name, meaning in ESTIMATED.items()
        for column, text in (
            (name, f"median over repeats: {meaning}"),
            (f"{name}_low", f"lower end of {name}"),
            (f"{name}_high", f"upper end of {name}"),
        )
    },
    "spread": "what low and high are: a 95 % interval from 6 repeats on, else the range",
    "speedup": "throughput over that of the base cell: X(N) / X(1)",
    "speedup_low": "lower end of speedup",
    "speedup_high": "upper end of speedup",
    "scaling_efficiency": "speedup / N: 1 is linear scaling",
    "scaling_efficiency_low": "lower end of scaling_efficiency",
    "scaling_efficiency_high": "upper end of scaling_efficiency",
    "speedup_spread": "what these lows and highs are: a 95 % interval from 7 repeats on, else the range",
    "effective_precision": TIMINGS["effective_precision"],
    "base_cell": "strategy/launcher/topology of the base: one device, all else equal; empty without one (n/a)",
    "warnings": "what to know before trusting this row",
}
CELL = ["experiment", "strategy", "base", "launcher", "nodes", "devices_per_node", "devices"]
LOSSES = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    "segment": "epoch (or: 0 the warm-up steps, 1 the timed ones), from 0",
    "step": "optimiser step from 0, over all segments",
    "samples_seen": "training samples up to and with this step, over all ranks",
    "loss": "mean loss of the global batch",
}
EVALUATIONS = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    "segment": LOSSES["segment"],
    "warmup": "whether the segment is warm-up",
    "samples": "test samples that were counted, each exactly once",
    "predictions": "one for each image, one for each token of a sequence",
    "correct": "how many of them were right; empty where ranks hold different weights",
    "correct_top5": "how many had the right class among the five likeliest; empty with no more than five classes, too",
    "loss": "mean loss over the samples",
    "learning_rate": "of the training's last step before it",
    "evaluation_time_s": "the slowest rank's time, in s",
}
TABLES = {"timings": TIMINGS, "summary": SUMMARY, "losses": LOSSES, "evaluations": EVALUATIONS}
TEXTS = {"experiment", "strategy", "base", "launcher", "device", "precision", "scaling", "status", "reason"}
TEXTS |= {"effective_precision", "epoch_time_source", "host", "started_at", "ended_at", "warnings"}
TEXTS |= {"spread", "speedup_spread", "base_cell"}


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """A table as it was written. Texts stay texts, even a strategy called `nan`; only an empty cell is a missing value."""
    import pandas as pd

    kinds: dict[Any, type] = {column: str for column in TABLES[name] if column in TEXTS}
    return pd.read_csv(folder / f"{name}.csv", dtype=kinds, keep_default_na=False, na_values=[""])


def make_tables(measured: Sequence[Measured], mixed_nodes: bool = False) -> dict[str, pd.DataFrame]:
    """All tables of one experiment, by name.

    Args:
        mixed_nodes: let records of different classes of machine into one table.

    Raises:
        UserError: a record is of another trial than planned, or records come from different classes of machine.
    """
    refuse_foreign_records(measured)
    if not mixed_nodes:
        refuse_mixed_machines([record for _, record, _ in measured if record is not None and record.status == "ok"])
    timings = _frame("timings", [_timing(trial, record, steps) for trial, record, steps in measured])
    return {
        "timings": timings,
        "summary": summarize(timings),
        "losses": _frame("losses", _losses(measured)),
        "evaluations": _frame("evaluations", _evaluations(measured)),
    }


def refuse_foreign_records(measured: Sequence[Measured]) -> None:
    for trial, record, _ in measured:
        if record is not None and record.trial.planned != trial:
            raise UserError(
                f"{trial.id}: its record is of another configuration; run the same command again, or delete {trial.folder}"
            )


def refuse_mixed_machines(records: Sequence[Record]) -> None:
    """Raises UserError: names the first fact in which the machines or their software differ, within a trial or between."""
    for fact in CLASS_FACTS:
        values: dict[Any, str] = {}
        for record in records:
            for machine in [record.environment, *record.nodes]:
                if fact in machine:
                    values.setdefault(machine[fact], f"{record.trial.id} on {machine['node']}")
        if len(values) > 1:
            (first, one), (second, other), *_ = values.items()
            raise UserError(
                f"records of different machines or software don't make one table: {fact} is {first!r} in {one} and "
                f"{second!r} in {other}; measure them again (snakemake --forcerun trial), or set mixed_nodes: true"
            )


def summarize(timings: pd.DataFrame) -> pd.DataFrame:
    """One row per cell, from one row per trial."""
    cells = [cell for _, cell in timings.groupby(["strategy", "launcher", "nodes", "devices_per_node"], sort=False)]
    return _frame("summary", [_summary(cell, _base_of(cell, cells)) for cell in cells])


def _frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    unknown = {name for row in rows for name in row} - TABLES[table].keys()
    assert not unknown, f"columns {unknown} are not in TABLES[{table!r}]"
    frame = pd.DataFrame(rows, columns=list(TABLES[table]))
    found = {column: "Int64" for column in ("batch_size_per_device", "global_batch_size") if column in frame}
    return frame.astype(found)  # whole numbers, also beside empty ones


def _identity(trial: Trial, names: Sequence[str] = tuple(IDENTITY)) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in names}


def _timing(trial: Trial, record: Record | None, steps: metrics.Steps | None) -> dict[str, Any]:
    row = {**_identity(trial if record is None else record.trial), "repeat": trial.repeat}
    if record is None:
        return {**row, "status": "missing", "reason": "not measured yet", "warnings": ""}
    row |= {"started_at": record.launch["started_at"], "ended_at": record.launch["ended_at"]}
    if record.status != "ok" or steps is None:
        return {**row, "status": record.status, "reason": record.reason, "warnings": ""}
    epoch_s, evaluation_s = metrics.epoch_time_s(record), metrics.evaluation_time_s(record)
    return {
        **row,
        "status": "ok",
        "reason": "",
        "effective_precision": ", ".join(f"{what} {dtype}" for what, dtype in record.effective_precision.items()),
        "compile_time_s": record.compile_time_s,
        "skipped_steps": record.skipped_steps,
        "epoch_time_s": epoch_s,
        "epoch_time_source": metrics.epoch_time_source(record),
        "step_time_s": metrics.step_time_s(steps),
        "throughput_samples_per_s": metrics.throughput_samples_per_s(record),
        "evaluation_time_s": evaluation_s,
        "evaluation_throughput_samples_per_s": metrics.evaluation_throughput_samples_per_s(record),
        "epoch_with_evaluation_s": None if evaluation_s is None else epoch_s + evaluation_s,
        "utilization_percent": metrics.utilization_percent(record),
        "peak_memory_MiB": metrics.peak_memory_MiB(record, "memory"),
        "peak_allocated_MiB": metrics.peak_memory_MiB(record, "allocated"),
        "peak_reserved_MiB": metrics.peak_memory_MiB(record, "reserved"),
        "final_accuracy": metrics.final_accuracy(record),
        "final_top5_accuracy": metrics.final_top5_accuracy(record),
        **metrics.phase_times_s(steps),
        "cpu_percent_per_rank": metrics.cpu_percent_per_rank(record),
        "others_cpu_percent": metrics.others_cpu_percent(record),
        "train_samples_per_epoch": sum(record.timed_segments[-1].samples),
        "host": record.environment["host"],
        "warnings": "; ".join(metrics.warnings(record)),
    }


def _base_of(cell: pd.DataFrame, cells: list[pd.DataFrame]) -> pd.DataFrame | None:
    """The cell that this one is compared with: one device, all else equal.

    The plain `single` if the experiment has it in the same precision, compiled alike and in the same memory format; else
    the same strategy and launcher on one device.
    """
    me = cell.iloc[0]

    def first_of(other: pd.DataFrame) -> pd.Series:
        return other.iloc[0]

    one_device = [
        other
        for other in cells
        if first_of(other).devices == 1
        and all(first_of(other)[fact] == me[fact] for fact in ("precision", "compile", "channels_last"))
        and (other.status == "ok").any()
    ]
    singles = [other for other in one_device if first_of(other).base == "single"]
    if singles:  # the plain one first: a variant with options of its own is no equal
        return min(singles, key=lambda other: first_of(other).strategy != "single")
    for other in one_device:
        if (first_of(other).strategy, first_of(other).launcher) == (me.strategy, me.launcher):
            return other
    return None


def _summary(cell: pd.DataFrame, base: pd.DataFrame | None) -> dict[str, Any]:
    good = cell[cell.status == "ok"]
    first = (cell if good.empty else good).iloc[0]
    row = {
        **{name: first[name] for name in IDENTITY},
        "repeats_planned": len(cell),
        "repeats": len(good),
        "warnings": "; ".join(_warnings(good)),
    }
    if good.empty:
        return {**row, "status": first.status, "reason": first.reason}
    row |= {"status": "ok", "reason": ""}
    if len(good) < len(cell):
        row["reason"] = f"{len(cell) - len(good)} of {len(cell)} repeats missing"
    for name in ESTIMATED:
        values = good[name].dropna().astype(float).tolist()
        if values:
            found = statistics.estimate(values)
            row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
    row["spread"] = statistics.estimate(good.throughput_samples_per_s.tolist()).spread
    row["effective_precision"] = good.iloc[0].effective_precision
    if base is not None:
        bases = base[base.status == "ok"]
        row["warnings"] = "; ".join(
            filter(None, [row["warnings"], _other_precision(good, bases), _other_batch(good, bases)])
        )
    return row | _speedup(good, base)


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
    first, devices = base.iloc[0], int(good.iloc[0].devices)
    mine = good.throughput_samples_per_s.astype(float).tolist()
    base_values = base[base.status == "ok"].throughput_samples_per_s.astype(float).tolist()
    found = statistics.ratio(mine, base_values)
    if good.index.equals(base[base.status == "ok"].index):  # the base itself: 1 by definition, without a spread
        found = statistics.Estimate(1.0, 1.0, 1.0, found.spread)
    return {
        "speedup": found.value,
        "speedup_low": found.low,
        "speedup_high": found.high,
        "scaling_efficiency": metrics.scaling_efficiency(found.value, devices),
        "scaling_efficiency_low": metrics.scaling_efficiency(found.low, devices),
        "scaling_efficiency_high": metrics.scaling_efficiency(found.high, devices),
        "speedup_spread": found.spread,
        "base_cell": f"{first.strategy}/{first.launcher}/{first.nodes}x{first.devices_per_node}",
    }


def _warnings(good: pd.DataFrame) -> list[str]:
    """Each kind of warning once, with the number of repeats that it came up in."""
    found: dict[str, list[str]] = {}
    for text in good.warnings:
        for warning in filter(None, text.split("; ")):
            found.setdefault("other processes" if warning.startswith("other processes") else warning, []).append(
                warning
            )
    return [f"{texts[0]} (in {len(texts)} of {len(good)} repeats)" for texts in found.values()]


def _losses(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {**_identity(trial, CELL), "repeat": trial.repeat, **row}
        for trial, record, steps in measured
        if record is not None and record.status == "ok" and steps is not None
        for row in metrics.loss_by_step(steps)
    ]


def _evaluations(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {
            **_identity(trial, CELL),
            "repeat": trial.repeat,
            "segment": index,
            "warmup": segment.warmup,
            "samples": segment.evaluation.samples,
            "predictions": segment.evaluation.predictions,
            "correct": segment.evaluation.correct,
            "correct_top5": segment.evaluation.correct_top5,
            "loss": segment.evaluation.loss,
            "learning_rate": segment.learning_rate,
            "evaluation_time_s": metrics.slowest_s(segment.evaluation.windows_s),
        }
        for trial, record, _ in measured
        if record is not None and record.status == "ok"
        for index, segment in enumerate(record.segments)
        if segment.evaluation is not None
    ]
