"""Rows that one trial gives: its times, its losses, its evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dpscale import metrics, statistics
from dpscale.record import RECORD, Record
from dpscale.tables.cells import CELL_KEY, measured
from dpscale.tables.gpus import warnings_of_gpus
from dpscale.tables.monitor import Samples
from dpscale.tables.placebo import twin
from dpscale.tables.schema import Measured, frame, identity
from dpscale.tables.schema.cells import CELL
from dpscale.trial import PLACEBO, Trial

if TYPE_CHECKING:
    import pandas as pd


def timings_of(found: Sequence[Measured], samples: Samples = MappingProxyType({})) -> pd.DataFrame:
    """A row per planned trial; `samples` of the monitor add to its warnings."""
    placebo_of = twin([trial for trial, _, _ in found])
    rows = [timing(*item, samples.get(item[0].id)) for item in found]
    for row in rows:
        row["placebo_of"] = placebo_of if row["strategy"] == PLACEBO else ""
    return _marked(frame("timings", rows))


def _marked(timings: pd.DataFrame) -> pd.DataFrame:
    """With `outlier` where there is a time: whether it lies far from its cell's other repeats."""
    of_cells = measured(timings).groupby(CELL_KEY, sort=False).epoch_time_s
    marks = of_cells.transform(lambda times: statistics.outliers(times.tolist()))
    return timings.assign(outlier=marks.astype(object))


def timing(
    trial: Trial, record: Record | None, steps: metrics.Steps | None, samples: pd.DataFrame | None
) -> dict[str, Any]:
    row = {**identity(trial if record is None else record.trial), "repeat": trial.repeat}
    row |= {"configuration": trial.configuration}
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
        "attempts": len(record.launch["attempts"]),
        "checkpoint_time_s": metrics.checkpoint_time_s(record),
        "skipped_steps": record.skipped_steps,
        "epoch_time_s": epoch_s,
        "epoch_time_source": metrics.epoch_time_source(record),
        "step_time_s": metrics.step_time_s(steps),
        "throughput_samples_per_s": metrics.throughput_samples_per_s(record),
        "throughput_per_device_samples_per_s": metrics.throughput_per_device_samples_per_s(record),
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
        "measuring_overhead_percent": metrics.measuring_overhead_percent(record, steps),
        "train_samples_per_epoch": metrics.train_samples_per_epoch(record),
        "test_samples": metrics.test_samples(record),
        "train_samples": metrics.train_samples(steps),
        "training_time_s": metrics.training_time_s(record.timed_segments),
        "host": record.environment["host"],
        "device_model": record.environment["device_model"],
        "warnings": "; ".join([*metrics.warnings(record, steps), *warnings_of_gpus(record, samples)]),
    }


def records(measured: Sequence[Measured], digests: Mapping[str, str]) -> list[dict[str, Any]]:
    """Where every number comes from."""
    rows = []
    for trial, record, _ in measured:
        row = {**identity(trial, CELL), "repeat": trial.repeat}
        if record is None:
            rows.append({**row, "status": "missing", "reason": "not measured yet"})
            continue
        row |= {"status": record.status, "reason": record.reason or ""}
        row |= {"record": str(trial.folder / RECORD), "record_sha256": digests.get(trial.id)}
        row |= {name: record.environment.get(name) for name in ("code_digest", "commit")}
        rows.append({**row, "started_at": record.launch["started_at"]})
    return rows


def losses(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {**identity(trial, CELL), "repeat": trial.repeat, **row}
        for trial, record, steps in measured
        if record is not None and record.status == "ok" and steps is not None
        for row in metrics.loss_by_step(steps)
    ]


def evaluations(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [
        {
            **identity(trial, CELL),
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
