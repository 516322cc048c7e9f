"""Small whole things for tests: each factory makes a valid one, and a test says only what it is about."""

from __future__ import annotations

import copy
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpscale.explaining.stamps import CONTROLS, PLAIN, Block, Explained, Stamps, Use
from dpscale.forecasting.ledger import Entry, Interval
from dpscale.record import SAMPLE_COLUMNS, STEP_COLUMNS, Evaluation, RankFacts, Record, Segment
from dpscale.tables.schema import Measured
from dpscale.trial import Trial

NETWORKS = Path(__file__).parents[1] / "workflow/networks"
NEEDED_OPTIONS = {"emulated_ddp": {"network": str(NETWORKS / "ten_gigabit_ethernet.yaml")}}  # rows can't do without
MACHINE = {
    "host": "laptop",
    "node": "laptop",
    "cpu_model": "Some CPU",
    "usable_cpus": 2,
    "devices_per_machine": None,
    "device_model": None,
    "driver": None,
    "max_clock_MHz": 3000,
    "governor": "performance",
    "numa_nodes": 1,
    "kernel": "6.1.0",
    "container": None,
    "device_memory_bytes": None,
    "device_ecc": None,
    "device_power_limit_w": None,
    "device_max_clock_MHz": None,
    "python": "3.11.2",
    "torch": "2.14.1",
    "cuda": None,
    "nccl": None,
    "code_digest": "0123456789abcdef",
    "commit": "0123456789ab",
}
LAUNCH = {
    "command": ["python", "scripts/launch.py"],
    "rerun": "env python scripts/launch.py",
    "started_at": "2026-01-01T00:00:00+00:00",
    "ended_at": "2026-01-01T00:01:00+00:00",
    "port_attempts": 1,
    "attempts": [
        {
            "started_at": "2026-11-30T10:00:00+00:00",
            "host": "laptop",
            "ended_at": "2026-11-30T10:01:00+00:00",
            "how": "ok",
        }
    ],
}


def a_trial(**changes: Any) -> Trial:
    """ddp by spawn on 1x2, weak scaling, batch 32 per device, 3 epochs of which 1 is warm-up."""
    values: dict[str, Any] = {
        "experiment": "quickstart",
        "strategy": "ddp",
        "base": changes.get("strategy", "ddp"),
        "options": {},
        "launcher": "spawn",
        "nodes": 1,
        "devices_per_node": 2,
        "repeat": 0,
        "device": "cpu",
        "backend": "gloo",
        "precision": "fp32",
        "compile": False,
        "channels_last": False,
        "model": "convnet",
        "model_options": {"dropout": False},
        "dataset": "digits",
        "train_samples": None,
        "test_samples": None,
        "optimizer": {"name": "adadelta", "lr": 0.5, "momentum": None, "weight_decay": 0.0},
        "scaling": "weak",
        "batch_size_per_device": 32,
        "headroom_percent": None,
        "epochs": 3,
        "warmup_epochs": 1,
        "steps": None,
        "warmup_steps": None,
        "evaluate": True,
        "explain": False,
        "threads_per_rank": 1,
        "loader_workers": 0,
        "monitor_interval_s": 0.5,
        "seed": 0,
        "timeout_s": 600.0,
        "collective_timeout_s": 120.0,
        "checkpoint_interval_s": 600.0,
    } | changes
    single_process = values["base"] in ("single", "data_parallel")
    values.setdefault("world_size", 1 if single_process else values["nodes"] * values["devices_per_node"])
    return Trial(**values)


def a_single_trial(**changes: Any) -> Trial:
    return a_trial(**{"strategy": "single", "devices_per_node": 1} | changes)


def a_config(**changes: Any) -> dict[str, Any]:
    """A parsed config.yaml: one experiment called `quick`; `changes` are of that experiment, None takes a key away."""
    experiment: dict[str, Any] = {
        "workload": {"model": "convnet", "dataset": "digits"},
        "strategies": {"single": None, "ddp": None},
        "launchers": ["spawn", "torchrun"],
        "topologies": ["1x1", "1x2"],
        "batch": {"per_device": 32},
        "epochs": 3,
        "repeats": 2,
    } | changes
    return {"experiments": {"quick": {key: value for key, value in experiment.items() if value is not None}}}


def changed(data: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy of nested mappings and lists with another value at a path."""
    whole = copy.deepcopy(data)
    *way, last = path
    place = whole
    for key in way:
        if isinstance(place, dict) and place.get(key) is None:
            place[key] = {}
        place = place[key]
    place[last] = value
    return whole


def a_segment(
    *,
    seconds: Sequence[float] = (2.0, 2.0),
    samples: Sequence[int] | None = None,
    num_steps: int = 2,
    warmup: bool = False,
    evaluation: Evaluation | None = None,
) -> Segment:
    """A segment in which rank r takes seconds[r]; all ranks begin together."""
    return Segment(
        warmup=warmup,
        windows_s=[(100.0, 100.0 + duration_s) for duration_s in seconds],
        samples=list(samples or [32 * num_steps] * len(seconds)),
        num_steps=num_steps,
        learning_rate=0.5,
        evaluation=evaluation,
    )


def an_evaluation(
    *,
    seconds: Sequence[float] = (1.0, 1.0),
    samples: int = 100,
    correct: int | None = 90,
    correct_top5: int | None = 99,
    loss: float | None = 0.25,
) -> Evaluation:
    return Evaluation(
        windows_s=[(200.0, 200.0 + duration_s) for duration_s in seconds],
        samples=samples,
        predictions=samples,
        correct=correct,
        correct_top5=correct_top5,
        loss=loss,
    )


def rank_facts(rank: int = 0, **changes: Any) -> RankFacts:
    values: dict[str, Any] = {
        "rank": rank,
        "node": "laptop",
        "device_uuids": [],
        "cpu_time_s": 3.0,
        "peak_memory_bytes": 300 * 1024 * 1024,
        "proportional_memory_bytes": 200 * 1024 * 1024,
        "peak_allocated_bytes": None,
        "peak_reserved_bytes": None,
        "gpu_utilization_percent": None,
        "threads": 1,
        "affinity": [0, 1],
        "startup_s": {"import_s": 2.0, "staging_s": 0.0, "rendezvous_s": 0.25, "loader_s": 0.5, "build_s": 1.0},
        "measuring_s_per_step": 1e-6,
    }
    return RankFacts(**values | changes)


def a_record(trial: Trial | None = None, **changes: Any) -> Record:
    """A measured trial: a slow warm-up epoch of 9 s, and two timed ones of 2 s on every rank."""
    trial = trial or a_trial()
    n = trial.world_size
    evaluation = an_evaluation(seconds=[1.0] * n)
    values: dict[str, Any] = {
        "trial": trial,
        "status": "ok",
        "reason": None,
        "environment": dict(MACHINE),
        "launch": dict(LAUNCH),
        "segments": [
            a_segment(seconds=[9.0] * n, warmup=True, evaluation=evaluation),
            *[a_segment(seconds=[2.0] * n, evaluation=evaluation)] * 2,
        ],
        "ranks": [rank_facts(rank) for rank in range(n)],
        "steps_per_epoch": 2,
        "machines_cpu_time_s": [3.0 * trial.ranks_per_node] * trial.nodes,
        "monitor_absent": [{"package": "no RAPL", "gpu": "no GPU is used"}] * trial.nodes,
        "oversubscribed": False,
        "effective_precision": {
            "weights": "float32",
            "compute": "float32",
            "gradients": "float32",
            "optimizer_state": "float32",
        },
        "weights_max_difference": 0.0,
        "steps_sha256": None,
        "monitor_sha256": None,
    }
    return Record(**values | changes)


def an_unavailable_record(trial: Trial | None = None, reason: str = "needs CUDA devices") -> Record:
    return Record(
        trial=trial or a_trial(),
        status="unavailable",
        reason=reason,
        environment=dict(MACHINE),
        launch=dict(LAUNCH),
    )


def step_columns(record: Record) -> dict[str, list[Any]]:
    """Columns of steps.parquet that fit a record: equal steps, equal phases, a loss that falls from 2."""
    columns: dict[str, list[Any]] = {name: [] for name in STEP_COLUMNS}
    for rank in range(record.trial.world_size):
        steps_before = 0
        for index, segment in enumerate(record.segments):
            start, end = segment.windows_s[rank]
            for step in range(segment.num_steps):
                row = {name: (end - start) / segment.num_steps / 4 for name in STEP_COLUMNS if name.endswith("_s")}
                row |= {"segment": index, "warmup": segment.warmup, "rank": rank, "step": step}
                count, left = divmod(segment.samples[rank], segment.num_steps)
                row |= {"samples": count + (step < left), "loss": 2 / (1 + steps_before + step)}
                for name, value in row.items():
                    columns[name].append(value)
            steps_before += segment.num_steps
    return columns


def steps_of(record: Record) -> dict[str, np.ndarray]:
    """The same as metrics.py takes them."""
    return {name: np.array(values) for name, values in step_columns(record).items()}


def samples_of(record: Record, cpu_percent: float = 75.0) -> pd.DataFrame:
    """What a monitor saw of a record's ranks: a sample every half second from 5 s before the first step to long after all."""
    rows = [
        {
            "node": rank // record.trial.ranks_per_node,
            "kind": "rank",
            "name": str(rank),
            "time_s": time_s,
            "cpu_time_s": cpu_percent / 100 * (time_s - 90),
            "memory_bytes": 250 * 1024 * 1024,
        }
        for rank in range(record.trial.world_size)
        for time_s in np.arange(95.0, 115.0, 0.5)
    ]
    return pd.DataFrame(rows, columns=list(SAMPLE_COLUMNS))


def measured(trial: Trial | None = None, epoch_s: float = 2.0, **changes: Any) -> Measured:
    """What tables are made from: a planned trial whose two timed epochs took `epoch_s` each, its record and steps."""
    trial = trial or a_trial()
    n = trial.world_size
    evaluation = an_evaluation(seconds=[1.0] * n) if trial.evaluate else None
    segments = [
        a_segment(
            seconds=[duration_s] * n,
            samples=[2 * trial.batch_size_per_rank] * n,
            warmup=warmup,
            evaluation=evaluation,
        )
        for duration_s, warmup in ((9.0, True), (epoch_s, False), (epoch_s, False))
    ]
    record = a_record(trial, **{"segments": segments} | changes)
    return trial, record, steps_of(record)


def repeats(trial: Trial, epochs_s: Sequence[float]) -> list[Measured]:
    """Launches of one cell, repeat r with timed epochs of epochs_s[r]."""
    return [measured(replace(trial, repeat=repeat), epoch_s) for repeat, epoch_s in enumerate(epochs_s)]


@dataclass(frozen=True)
class AStep:
    """Moments of a step in ms since its start: by default 40 ms, in which two buckets are ready after 20 and 30."""

    batch: float
    forward: float
    ready: tuple[float, ...]
    exchanged: tuple[float, ...]
    update: float


def a_step(
    *,
    wait: float = 0,
    forward: float = 10,
    backward: float = 0,
    ready: tuple[float, float] = (20, 30),
    exchanges: tuple[float, float] = (0, 0),
    update: float = 0,
) -> AStep:
    """`forward` and `ready` count from the batch's arrival, which is after `wait`; `backward` and `update` are delays before
    the first bucket and at the end; `exchanges` are how long each bucket takes to be exchanged."""
    there = [wait + backward + moment for moment in ready]
    exchanged = [moment + lasts for moment, lasts in zip(there, exchanges, strict=True)]
    return AStep(wait, wait + forward, tuple(there), tuple(exchanged), max(exchanged) + 10 + update)


def some_stamps(step: AStep, buckets: bool, count: int = 4) -> Stamps:
    """`count` equal steps, one after the other."""
    starts = [step.update * number / 1000 for number in range(count)]

    def moments(moment: float) -> list[float]:
        return [start + moment / 1000 for start in starts]

    def of_buckets(each: tuple[float, ...]) -> list[list[float]]:
        return [[start + moment / 1000 for moment in each if buckets] for start in starts]

    return Stamps(
        start_s=starts,
        batch_s=moments(step.batch),
        forward_s=moments(step.forward),
        ready_s=of_buckets(step.ready),
        exchanged_s=of_buckets(step.exchanged),
        backward_s=moments(max(step.exchanged)),
        update_s=moments(step.update),
    )


def moved(stamps: Stamps, by_s: float) -> Stamps:
    """The same of a clock with another zero."""

    def shifted(value: Any) -> Any:
        return [shifted(item) for item in value] if isinstance(value, list) else value + by_s

    return Stamps(**{name: shifted(value) for name, value in asdict(stamps).items()})


def an_explained(*, ranks: int = 2, rounds: int = 1, **controls: AStep | list[AStep]) -> Explained:
    """Blocks in which every step is as `a_step()` makes it; `controls` are other steps, of all ranks or of each."""
    blocks = []
    for number in range(rounds):
        for control in CONTROLS:
            given = controls.get(control, a_step())
            for rank, step in enumerate(given if isinstance(given, list) else [given] * ranks):
                stamps = some_stamps(step, buckets=control != PLAIN)
                blocks.append(Block(round=number, control=control, rank=rank, stamps=stamps))
    uses = [
        Use(rank=rank, window_s=(0.0, 10.0), cpu_time_s=9.0, machine_cpu_time_s=9.0 * ranks) for rank in range(ranks)
    ]
    return Explained(broadcasts_buffers=False, bucket_bytes=[2**20, 3 * 2**20], blocks=blocks, uses=uses)


def explained_record(
    trial: Trial | None = None, ranks: list[RankFacts] | None = None, **controls: AStep | list[AStep]
) -> Measured:
    """A planned trial that explains itself in six rounds, its record and steps."""
    trial = trial or a_trial(explain=True)
    explained = an_explained(ranks=trial.world_size, rounds=6, **controls)
    return measured(trial, explained=explained, **({"ranks": ranks} if ranks else {}))


def an_entry(**changes: Any) -> Entry:
    """A line of the ledger: ddp by spawn on 1x4 as in `a_trial`, calibrated on two devices, an epoch in 2 s; of a day before LAUNCH."""
    values: dict[str, Any] = {
        "predicted_at": "2025-12-31T10:00:00+00:00",
        "code": "0123456789abcdef",
        "inputs": {f"quickstart/trials/ddp/spawn/{place}/r0/record.json": "ab" * 32 for place in ("1x1", "1x2")},
        "strategy": "ddp",
        "same": ["ddp"],
        "base": "ddp",
        "launcher": "spawn",
        "nodes": 1,
        "devices_per_node": 4,
        "configuration": a_trial().configuration,
        "setting": {"samples": 1000, "batch": 32},
        "calibrated_up_to": 2,
        "epoch_time_s": 2.0,
        "intervals": {"80": Interval(low=1.8, high=2.3), "95": Interval(low=1.6, high=2.5)},
        "scaling_efficiency": 0.8,
        "steps": 2.0,
        "parts": {"compute_s": 0.6, "contention_s": 0.1, "compression_s": 0.0, "stretch_s": 0.0}
        | {"exposed_communication_s": 0.2, "straggler_s": 0.05},
        "epoch_fixed_s": 0.1,
        "limited_by": "exposed_communication",
        "limited_by_share": 0.15,
        "baselines": {"ideal": 1.5},
    }
    return Entry(**{**values, **changes})


def idx_bytes(array: np.ndarray, kind: int = 0x08) -> bytes:
    """An idx file, as MNIST's are; kind: of its elements, unsigned bytes if it is true."""
    return struct.pack(f">HBB{array.ndim}I", 0, kind, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
