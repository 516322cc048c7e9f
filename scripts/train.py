"""The one training script: one rank of one trial. Started by scripts/launch.py through a launcher."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from dpscale import checks, evaluation, measure
from dpscale.checkpoint import Checkpoints
from dpscale.course import Course, Part, Plan
from dpscale.environment import describe_machine, device_uuids
from dpscale.errors import UserError
from dpscale.explaining.explain import explain
from dpscale.explaining.stamps import Explained
from dpscale.launching.attempt import RESUMABLE, write_failure, write_stopped
from dpscale.launching.slurm import node_name
from dpscale.monitoring import monitor
from dpscale.monitoring.sampling import KINDS, Watch, Watched
from dpscale.ranks import be_rank
from dpscale.record import MONITOR, STEPS, RankFacts, Record, Segment, write_samples, write_steps
from dpscale.stopping import StopRequest
from dpscale.strategies import STRATEGIES
from dpscale.survey import survey
from dpscale.training import Training
from dpscale.trial import Trial
from dpscale.workloads.loading import Loader, TrainingStream, open_loader
from dpscale.workloads.prepared import staged
from dpscale.world import World, process_group
from dpscale.world import unmet_need as unmet_need_of_ranks


@dataclass(frozen=True)
class Node:
    """What the first rank of a node says of it."""

    machine: dict[str, Any]
    machine_cpu_time_s: float  # of all processes, over the timed segments
    watched: Watched


def train(
    trial: Trial, data: Path, out: Path, world: World, checkpoints: Checkpoints | None, laps: measure.Laps
) -> bool:
    """Train, time, check, and let rank 0 write the draft of the record.

    Returns:
        Whether the training came to its end. If it was asked to stop, it has saved itself.
    """
    surveyed = survey(world, trial.ranks_per_node, trial.collective_timeout_s) if trial.nodes > 1 else None
    for line in surveyed["slow"] if surveyed else ():
        world.say(line)
    node_cpus, watch = start_monitor(trial, world)
    stream = TrainingStream(trial, data, world.rank, world.device)
    test = open_loader(trial, data, "test", world.device) if trial.evaluate else None
    laps.end("loader_s")
    checks.averages_gradients(trial, stream, world)
    laps.end("check_s")
    for index in world.device_indices:  # the check's model was another one's
        torch.cuda.reset_peak_memory_stats(index)
    training = Training(trial, stream.samples, world, stream.steps_per_epoch)
    precision = checks.PrecisionObserver(training)
    usage = monitor.CpuUsage(node_cpus)
    laps.end("build_s")
    compile_time_s = time_to_compile(training, stream, world) if trial.compile else None
    if trial.compile:
        laps.end("compile_s")

    if checkpoints is not None and (reason := training.replica.cannot_resume):
        world.say(f"no checkpoints: {reason}")
        checkpoints = None
    course = Course(trial, training, usage, checkpoints, world)
    plans = segments_of(trial, stream.steps_per_epoch)
    course.take_up(plans, world.say)
    world.say("steps begin")
    if not run_segments(plans, course, stream, test, out):
        if world.rank == 0:
            write_stopped(out, course.progress.segment, course.progress.step)
        return False
    world.say("steps end")
    parts = course.parts

    watched = Watched() if watch is None else watch.end()
    if course.resumed_at is not None:
        watched = Watched(absent=dict.fromkeys(KINDS, "resumed: part of the training was in an earlier attempt"))
    facts = rank_facts(trial, world, usage, laps, parts[-1].interval.marks_per_step)
    training.finish()
    precision.look_at_optimizer()
    weights = list(training.weights())
    checks.losses_are_finite(trial, [loss for part in parts for loss in part.interval.losses])
    checks.weights_are_finite(trial, weights)
    difference = checks.weights_agree(trial, training.strategy, weights, world)
    checks.buffers_agree(trial, training.strategy, training.buffers(), world)
    skipped_steps = training.skipped_steps
    explained = explain(trial, training, stream, world, node_cpus) if trial.explain else None
    node = None
    if world.local_rank == 0:
        node = Node(describe_machine(trial.device, node_cpus), usage.machine_s, watched)
    gathered = world.gather((parts, facts, node, explained))
    if gathered is None:
        return True
    parts_by_rank = [ranks_parts for ranks_parts, _, _, _ in gathered]
    nodes = [ranks_node for _, _, ranks_node, _ in gathered if ranks_node is not None]
    machines = [node.machine for node in nodes]
    readings = [{"node": number, **found} for number, node in enumerate(nodes) for found in node.watched.readings]
    segments = merge_segments(parts_by_rank, training.strategy.exchanges_gradients)
    Record(
        trial=trial,
        status="ok",
        reason=None,
        environment=machines[0],
        nodes=machines,
        segments=segments,
        ranks=[with_gpu_utilization(ranks_facts, segments, readings) for _, ranks_facts, _, _ in gathered],
        steps_per_epoch=stream.steps_per_epoch,
        machines_cpu_time_s=[node.machine_cpu_time_s for node in nodes],
        oversubscribed=any(trial.ranks_per_node * trial.threads_per_rank > node["usable_cpus"] for node in machines),
        effective_precision=precision.seen,
        compile_time_s=compile_time_s,
        skipped_steps=skipped_steps,
        checkpoint_times_s=course.checkpoint_times_s,
        weights_max_difference=difference,
        survey=surveyed,
        monitor_absent=[node.watched.absent for node in nodes],
        explained=merge_explained([ranks_explained for _, _, _, ranks_explained in gathered]),
        steps_sha256=write_steps(out / STEPS, step_columns(parts_by_rank)),
        monitor_sha256=write_samples(out / MONITOR, readings),
    ).write(out)
    return True


def run_segments(plans: list[Plan], course: Course, stream: TrainingStream, test: Loader | None, out: Path) -> bool:
    """What is left of the training, segment by segment; returns whether all of it was done, or it has stopped and saved."""
    trial, training, world, usage = course.trial, course.training, course.world, course.usage
    if course.checkpoints is None:
        stop: StopRequest | None = None
    else:
        stop = StopRequest(world, training.replica.steps_apart, out)
    try:
        for planned_warmup, warmup, first_step, num_steps in course.rest_of(plans):
            batches = stream.batches(first_step, num_steps)
            stops_after = measure.never if stop is None else partial(stop.after, first_step)
            before = usage.rank_s, usage.machine_s
            with usage.counted(not warmup):
                interval = measure.time_steps(batches, training, world, num_steps, stops_after)
            if len(interval.samples) < num_steps:
                usage.rank_s, usage.machine_s = before
                course.interrupted(interval)
                course.save()
                return False
            evaluated = None
            if test is not None and (trial.epochs is not None or not planned_warmup):
                evaluated = evaluation.evaluate(test, training, trial.batch_size_per_rank, world)
            rate = training.replica.learning_rate
            course.ended(Part(warmup=warmup, interval=interval, learning_rate=rate, evaluated=evaluated))
            if stop is not None and len(course.parts) < len(plans):
                asked = stop.between_segments()
                if asked or course.is_due():
                    course.save()
                if asked:
                    return False
        return True
    finally:
        if stop is not None:
            stop.close()


def start_monitor(trial: Trial, world: World) -> tuple[set[int], Watch | None]:
    """(CPUs that any rank of this node may run on, this node's monitor: in its first rank, if one is asked for)."""
    mine = (world.node_rank, os.getpid(), monitor.affinity(), device_uuids(trial.device, world.device_indices))
    here = {rank: found for rank, (node, *found) in enumerate(world.exchange(mine)) if node == world.node_rank}
    cpus = {cpu for _, affinity, _ in here.values() for cpu in affinity}
    if world.local_rank > 0 or trial.monitor_interval_s is None:
        return cpus, None
    pids = {rank: pid for rank, (pid, _, _) in here.items()}
    uuids = [uuid for _, _, ranks_uuids in here.values() for uuid in ranks_uuids]
    return cpus, Watch(pids, uuids, sorted(cpus), trial.monitor_interval_s, workers=trial.loader_workers > 0)


def time_to_compile(training: Training, stream: TrainingStream, world: World) -> float:
    """Let torch.compile do its work on a first batch, apart from all steps; returns the slowest rank's time in s."""
    (batch,) = stream.batches(0, 1)
    _, (started_s, ended_s) = measure.time_call(lambda: training.rehearse(batch), world)
    return world.largest(ended_s - started_s)


def segments_of(trial: Trial, steps_per_epoch: int) -> list[Plan]:
    """Each segment: whole epochs, or warm-up steps and timed steps."""
    if trial.epochs is not None:
        warmup_epochs = trial.warmup_epochs or 0
        return [(epoch < warmup_epochs, epoch * steps_per_epoch, steps_per_epoch) for epoch in range(trial.epochs)]
    warmup_steps, steps = trial.warmup_steps or 0, trial.steps or 0
    return [(True, 0, warmup_steps)] * (warmup_steps > 0) + [(False, warmup_steps, steps - warmup_steps)]


def rank_facts(
    trial: Trial, world: World, usage: monitor.CpuUsage, laps: measure.Laps, marks_per_step: int
) -> RankFacts:
    cuda = world.device.type == "cuda"
    indices = world.device_indices
    return RankFacts(
        rank=world.rank,
        node=node_name(),
        device_uuids=device_uuids(trial.device, indices),
        cpu_time_s=usage.rank_s,
        peak_memory_bytes=monitor.peak_memory_bytes(),
        proportional_memory_bytes=monitor.proportional_memory_bytes(),
        peak_allocated_bytes=max(torch.cuda.max_memory_allocated(index) for index in indices) if cuda else None,
        peak_reserved_bytes=max(torch.cuda.max_memory_reserved(index) for index in indices) if cuda else None,
        gpu_utilization_percent=None,  # sampled beside the ranks: `with_gpu_utilization` adds it
        threads=torch.get_num_threads(),
        affinity=monitor.affinity(),
        startup_s=laps.times_s,
        measuring_s_per_step=marks_per_step * measure.cost_of_a_mark_s(world),
    )


def with_gpu_utilization(facts: RankFacts, segments: list[Segment], readings: list[dict[str, Any]]) -> RankFacts:
    """The mean over a rank's GPUs and the timed segments; absent unless each of them was sampled meanwhile."""
    windows = [segment.windows_s[facts.rank] for segment in segments if not segment.warmup]
    means = []
    for uuid in facts.device_uuids:
        found = [
            reading["utilization_percent"]
            for reading in readings
            if reading["name"] == uuid and any(start <= reading["time_s"] <= end for start, end in windows)
        ]
        if not found or None in found:
            return facts
        means.append(sum(found) / len(found))
    return replace(facts, gpu_utilization_percent=sum(means) / len(means)) if means else facts


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
    blocks = [block for explained in found for block in explained.blocks]
    return replace(found[0], blocks=blocks, uses=[use for explained in found for use in explained.uses])


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
    """Why this trial can't run on this machine, or None."""
    if need := unmet_need_of_ranks(trial):
        return need
    without_bf16 = trial.device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    if trial.precision == "bf16" and without_bf16:
        return f"needs bf16 units: {torch.cuda.get_device_name()} has none"
    if trial.compile and trial.device == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        return "torch.compile needs a C++ compiler: no g++ on this machine"
    return STRATEGIES[trial.base].needs(trial)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--stage-to", type=Path, help="node-local folder to copy the dataset to first")
    parser.add_argument("--out", type=Path, required=True, help="existing folder for the draft of the record")
    parser.add_argument(
        "--checkpoints", type=Path, help="folder of this trial's checkpoints; without it there are none"
    )
    parser.add_argument("--identity", help="what a checkpoint must be of to be taken up")
    Trial.add_arguments(parser)
    args = parser.parse_args(argv)
    laps = measure.Laps()
    be_rank(lambda rank: run(rank, Trial.from_args(args), args, laps), args.out)


def run(rank: int, trial: Trial, args: argparse.Namespace, laps: measure.Laps) -> None:
    """This rank's part of the trial, or the record that it is unavailable here.

    Raises:
        UserError: it can't be measured.
        SystemExit: it was asked to stop, and has saved itself.
    """
    torch.set_num_threads(trial.threads_per_rank)  # spawn, torchrun, Snakemake and shells all have other defaults
    if reason := unmet_need(trial):
        if rank == 0:
            Record.write_unavailable(trial, reason, describe_machine("cpu"), args.out)
        return
    if trial.batch_size_per_device is None:
        raise UserError(f"{trial.id}: the search for its batch could not run; delete its largest.json, search again")
    for module in STRATEGIES[trial.base].imported_first:
        import_module(module)
    laps.end("import_s")
    data = args.data if args.stage_to is None else staged(args.data, args.stage_to)
    laps.end("staging_s")
    checkpoints = None if args.checkpoints is None else Checkpoints(args.checkpoints, args.identity)
    with process_group(trial) as world:
        laps.end("rendezvous_s")
        try:
            ended = train(trial, data, args.out, world, checkpoints, laps)
        except Exception as error:
            if "timed out" in str(error).lower():
                limit = f"collective_timeout_s={trial.collective_timeout_s:g}"
                error.add_note(f"waited {limit} for the others: one hangs or is that much slower")
            write_failure(args.out, error)  # before this block's end closes connections and fails the others
            raise
    if not ended:
        sys.exit(RESUMABLE)


if __name__ == "__main__":
    main()
