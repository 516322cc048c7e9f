"""The one training script: one rank of one trial. Started by scripts/launch.py through a launcher."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from dpscale import checks, evaluation, measure, monitor
from dpscale.attempt import die_with_parent, write_failure
from dpscale.environment import describe_machine, device_uuids
from dpscale.errors import UserError
from dpscale.explain import explain
from dpscale.record import STEPS, RankFacts, Record, Segment, write_steps
from dpscale.slurm import node_name
from dpscale.stamps import Explained
from dpscale.strategies import STRATEGIES
from dpscale.training import Training
from dpscale.trial import Trial
from dpscale.workloads.loading import TrainingStream, open_loader
from dpscale.workloads.prepared import staged
from dpscale.world import World, launched_rank, process_group


@dataclass(frozen=True, kw_only=True)
class Part:
    """One rank's segment."""

    warmup: bool
    interval: measure.Interval
    learning_rate: float  # of its last step
    evaluated: evaluation.RankEvaluation | None


def train(trial: Trial, data: Path, out: Path, world: World) -> None:
    """Train, time, check, and let rank 0 write the draft of the record."""
    stream = TrainingStream(trial, data, world.rank, world.device)
    test = open_loader(trial, data, "test", world.device) if trial.evaluate else None
    checks.averages_gradients(trial, stream, world)
    training = Training(trial, stream.samples, world, stream.steps_per_epoch)
    precision = checks.PrecisionObserver(training)
    usage = monitor.CpuUsage()
    compile_time_s = time_to_compile(training, stream, world) if trial.compile else None

    parts: list[Part] = []
    say(world, "steps begin")
    for warmup, first_step, num_steps in segments_of(trial, stream.steps_per_epoch):
        batches = stream.batches(first_step, num_steps)
        with usage.counted(not warmup):
            interval = measure.time_steps(batches, training, world, num_steps)
        evaluated = None
        if test is not None and (trial.epochs is not None or not warmup):
            evaluated = evaluation.evaluate(test, training, trial.batch_size_per_rank, world)
        rate = training.replica.learning_rate
        parts.append(Part(warmup=warmup, interval=interval, learning_rate=rate, evaluated=evaluated))
    say(world, "steps end")

    facts = rank_facts(trial, world, usage)
    training.finish()
    precision.look_at_optimizer()
    weights = list(training.weights())
    checks.losses_are_finite(trial, [loss for part in parts for loss in part.interval.losses])
    checks.weights_are_finite(trial, weights)
    difference = checks.weights_agree(trial, training.strategy, weights, world)
    checks.buffers_agree(trial, training.strategy, training.buffers(), world)
    skipped_steps = training.skipped_steps
    explained = explain(trial, training, stream, world) if trial.explain else None
    machine = describe_machine(trial.device) if world.local_rank == 0 else None
    gathered = world.gather((parts, facts, machine, explained))
    if gathered is None:
        return
    parts_by_rank = [ranks_parts for ranks_parts, _, _, _ in gathered]
    nodes = [ranks_machine for _, _, ranks_machine, _ in gathered if ranks_machine is not None]
    Record(
        trial=trial,
        status="ok",
        reason=None,
        environment=nodes[0],
        nodes=nodes,
        segments=merge_segments(parts_by_rank, training.strategy.exchanges_gradients),
        ranks=[ranks_facts for _, ranks_facts, _, _ in gathered],
        steps_per_epoch=stream.steps_per_epoch,
        machine_cpu_time_s=usage.machine_s,
        oversubscribed=any(trial.ranks_per_node * trial.threads_per_rank > node["usable_cpus"] for node in nodes),
        effective_precision=precision.seen,
        compile_time_s=compile_time_s,
        skipped_steps=skipped_steps,
        weights_max_difference=difference,
        explained=merge_explained([ranks_explained for _, _, _, ranks_explained in gathered]),
        steps_sha256=write_steps(out / STEPS, step_columns(parts_by_rank)),
    ).write(out)


def time_to_compile(training: Training, stream: TrainingStream, world: World) -> float:
    """Let torch.compile do its work on a first batch, apart from all steps; returns the slowest rank's time in s."""
    (batch,) = stream.batches(0, 1)
    _, (started_s, ended_s) = measure.time_call(lambda: training.rehearse(batch), world)
    return world.largest(ended_s - started_s)


def segments_of(trial: Trial, steps_per_epoch: int) -> list[tuple[bool, int, int]]:
    """(warm-up?, first step, number of steps) of each segment: whole epochs, or warm-up steps and timed steps."""
    if trial.epochs is not None:
        warmup_epochs = trial.warmup_epochs or 0
        return [(epoch < warmup_epochs, epoch * steps_per_epoch, steps_per_epoch) for epoch in range(trial.epochs)]
    warmup_steps, steps = trial.warmup_steps or 0, trial.steps or 0
    return [(True, 0, warmup_steps)] * (warmup_steps > 0) + [(False, warmup_steps, steps - warmup_steps)]


def rank_facts(trial: Trial, world: World, usage: monitor.CpuUsage) -> RankFacts:
    cuda = world.device.type == "cuda"
    indices = world.device_indices
    return RankFacts(
        rank=world.rank,
        node=node_name(),
        device_uuids=device_uuids(trial.device, indices),
        cpu_time_s=usage.rank_s,
        peak_memory_bytes=monitor.peak_memory_bytes(),
        peak_allocated_bytes=max(torch.cuda.max_memory_allocated(index) for index in indices) if cuda else None,
        peak_reserved_bytes=max(torch.cuda.max_memory_reserved(index) for index in indices) if cuda else None,
        gpu_utilization_percent=None,  # sampled beside the ranks: the launching process adds it
        threads=torch.get_num_threads(),
    )


def merge_segments(parts_by_rank: list[list[Part]], same_weights: bool) -> list[Segment]:
    """[rank][segment] -> [segment], each with the times and counts of all ranks."""
    segments = []
    for parts in zip(*parts_by_rank, strict=True):
        first = parts[0]
        segments.append(
            Segment(
                warmup=first.warmup,
                windows_s=[(part.interval.started_s, part.interval.ended_s) for part in parts],
                samples=[sum(part.interval.samples) for part in parts],
                num_steps=len(first.interval.samples),
                learning_rate=first.learning_rate,
                evaluation=evaluation.merge([part.evaluated for part in parts], same_weights),
            )
        )
    return segments


def merge_explained(by_rank: list[Explained | None]) -> Explained | None:
    """[rank] -> the blocks of all ranks."""
    found = [explained for explained in by_rank if explained is not None]
    if not found:
        return None
    return replace(found[0], blocks=[block for explained in found for block in explained.blocks])


def step_columns(parts_by_rank: list[list[Part]]) -> dict[str, list[Any]]:
    """Every rank's every step as columns of steps.parquet."""
    columns: dict[str, list[Any]] = {}
    for rank, parts in enumerate(parts_by_rank):
        for segment, part in enumerate(parts):
            n = len(part.interval.samples)
            place: dict[str, list[Any]] = {
                "segment": [segment] * n,
                "warmup": [part.warmup] * n,
                "rank": [rank] * n,
                "step": list(range(n)),
            }
            for name, values in {**place, **measure.as_columns(part.interval)}.items():
                columns.setdefault(name, []).extend(values)
    return columns


def unmet_need(trial: Trial) -> str | None:
    """Why this trial can't run on this machine, or None.

    Raises:
        UserError: a CUDA trial where no CUDA device is visible at all: a wrong machine, not an unmet need.
    """
    if trial.device == "cuda":
        visible = torch.cuda.device_count()
        if visible == 0:
            raise UserError(
                f"{trial.id}: device: cuda, but no CUDA device is visible here (CUDA_VISIBLE_DEVICES="
                f"{os.environ.get('CUDA_VISIBLE_DEVICES')!r}); run it where there are GPUs, or set device: cpu"
            )
        if visible < trial.devices_per_node:
            return f"needs {trial.devices_per_node} CUDA devices per node: {visible} visible"
        if trial.precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
            return f"needs bf16 units: {torch.cuda.get_device_name()} has none"
    if trial.backend == "mpi" and not torch.distributed.is_mpi_available():
        return "needs a torch that was built with MPI: PyPI's is not"
    if trial.compile and trial.device == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        return "torch.compile needs a C++ compiler: no g++ on this machine"
    return STRATEGIES[trial.base].needs(trial)


def say(world: World, text: str) -> None:
    """A line for the trial's log, from rank 0; launch.py puts its own time before it."""
    if world.rank == 0:
        print(f"rank 0: {text}", flush=True)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--stage-to", type=Path, help="node-local folder to copy the dataset to first")
    parser.add_argument("--out", type=Path, required=True, help="existing folder for the draft of the record")
    Trial.add_arguments(parser)
    args = parser.parse_args(argv)
    trial = Trial.from_args(args)
    try:
        die_with_parent()
        torch.set_num_threads(trial.threads_per_rank)  # spawn, torchrun, Snakemake and shells all have other defaults
        rank = launched_rank()
        reason = unmet_need(trial)
        if reason is None:
            if trial.batch_size_per_device is None:
                raise UserError(
                    f"{trial.id}: the search for its batch could not run; delete its largest.json, search again"
                )
            data = args.data if args.stage_to is None else staged(args.data, args.stage_to)
            with process_group(trial) as world:
                try:
                    train(trial, data, args.out, world)
                except Exception as error:
                    if "timed out" in str(error).lower():
                        limit = f"collective_timeout_s={trial.collective_timeout_s:g}"
                        error.add_note(f"waited {limit} for the others: one hangs or is that much slower")
                    write_failure(args.out, error)  # before this block's end closes connections and fails the others
                    raise
        elif rank == 0:
            Record.write_unavailable(trial, reason, describe_machine("cpu"), args.out)
    except Exception as error:  # noqa: BLE001 - put down, shown, and ended with: whatever it is
        traceback.print_exception(error, limit=0 if isinstance(error, UserError) else None)
        write_failure(args.out, error)
        sys.exit(1)


if __name__ == "__main__":
    main()
