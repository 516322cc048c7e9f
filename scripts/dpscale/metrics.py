"""Pure arithmetic on records: every rate and share in the results is computed here and nowhere else.

Rates are sums over sums. `steps` are the columns of steps.parquet as numpy arrays, one row per rank and step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpscale.phases import PHASE_COLUMNS
from dpscale.record import Evaluation, RankFacts, Record, Segment, Window

Steps = Mapping[str, np.ndarray]
FLAG_OTHERS_ABOVE_PERCENT = 5.0
FLAG_OVERHEAD_ABOVE_PERCENT = 2.0
MIB = 1024 * 1024


def slowest_s(windows: list[Window]) -> float:
    """What all ranks do together takes as long as its slowest rank."""
    return max(end - start for start, end in windows)


def training_time_s(segments: list[Segment]) -> float:
    return sum(slowest_s(segment.windows_s) for segment in segments)


def throughput_samples_per_s(record: Record) -> float:
    """Delivered training samples of all ranks per second of training."""
    segments = record.timed_segments
    return sum(sum(segment.samples) for segment in segments) / training_time_s(segments)


def throughput_per_device_samples_per_s(record: Record) -> float:
    """Samples per second of one device: the mean over ranks, of which one process may feed several devices."""
    segments = record.timed_segments
    per_rank = [
        sum(samples) / training_time_s(segments) for samples in zip(*(s.samples for s in segments), strict=True)
    ]
    return sum(per_rank) / len(per_rank) * record.trial.world_size / record.trial.devices


def train_samples(steps: Steps) -> int:
    """Samples delivered in the timed steps of all ranks, counted step by step."""
    return int(steps["samples"][~steps["warmup"]].sum())


def train_samples_per_epoch(record: Record) -> float:
    """Mean of the timed epochs, or steps_per_epoch x the mean of the timed steps; all ranks."""
    segments = record.timed_segments
    delivered = sum(sum(segment.samples) for segment in segments)
    if record.trial.epochs is not None:
        return delivered / len(segments)
    assert record.steps_per_epoch is not None
    return record.steps_per_epoch * delivered / sum(segment.num_steps for segment in segments)


def epoch_time_s(record: Record) -> float:
    """Training time of one epoch: the mean of the timed epochs, or steps_per_epoch x the mean of the timed steps."""
    segments = record.timed_segments
    if record.trial.epochs is not None:
        return training_time_s(segments) / len(segments)
    assert record.steps_per_epoch is not None
    return record.steps_per_epoch * training_time_s(segments) / sum(segment.num_steps for segment in segments)


def epoch_time_source(record: Record) -> str:
    if record.trial.epochs is not None:
        return "measured"
    return f"from {sum(segment.num_steps for segment in record.timed_segments)} steps"


def step_time_s(steps: Steps) -> float:
    """Median over timed steps of the slowest rank's time: a synchronous step ends when its last rank does."""
    return float(np.median(_by_step(steps, np.sum([steps[phase] for phase in PHASE_COLUMNS], axis=0)).max(axis=1)))


def phase_times_s(steps: Steps) -> dict[str, float]:
    """Phase -> its mean over timed steps and ranks, in seconds; they add up to the mean step."""
    timed = ~steps["warmup"]
    return {phase: float(steps[phase][timed].mean()) for phase in PHASE_COLUMNS}


def loss_by_step(steps: Steps) -> list[dict[str, float | int]]:
    """Every step's loss over the whole global batch, and the samples seen up to and with it, warm-up included."""
    everything = {**steps, "warmup": np.zeros(len(steps["warmup"]), bool)}
    samples = _by_step(everything, steps["samples"])
    losses = (_by_step(everything, steps["loss"]) * samples).sum(axis=1) / samples.sum(axis=1)
    seen = samples.sum(axis=1).cumsum()
    segments = _by_step(everything, steps["segment"])[:, 0]
    return [
        {"segment": int(segment), "step": step, "samples_seen": int(count), "loss": float(loss)}
        for step, (segment, count, loss) in enumerate(zip(segments, seen, losses, strict=True))
    ]


def _by_step(steps: Steps, values: np.ndarray) -> np.ndarray:
    """Values of the timed steps as (steps, ranks)."""
    timed = ~steps["warmup"]
    order = np.lexsort((steps["rank"][timed], steps["step"][timed], steps["segment"][timed]))
    return values[timed][order].reshape(-1, len(np.unique(steps["rank"])))


def evaluations(record: Record) -> list[Evaluation]:
    return [segment.evaluation for segment in record.timed_segments if segment.evaluation is not None]


def evaluation_time_s(record: Record) -> float | None:
    """Mean time of one evaluation of the whole test set."""
    found = evaluations(record)
    return sum(slowest_s(item.windows_s) for item in found) / len(found) if found else None


def evaluation_throughput_samples_per_s(record: Record) -> float | None:
    found = evaluations(record)
    return sum(item.samples for item in found) / sum(slowest_s(item.windows_s) for item in found) if found else None


def test_samples(record: Record) -> float | None:
    """Mean samples of one evaluation."""
    found = evaluations(record)
    return sum(item.samples for item in found) / len(found) if found else None


def final_accuracy(record: Record) -> float | None:
    """Share of the predictions over the test set that is right after the last segment; None where ranks hold different weights."""
    found = evaluations(record)
    if not found or found[-1].correct is None:
        return None
    return found[-1].correct / found[-1].predictions


def final_top5_accuracy(record: Record) -> float | None:
    """The same of predictions whose five likeliest classes hold the right one; None with no more than five classes too."""
    found = evaluations(record)
    if not found or found[-1].correct_top5 is None:
        return None
    return found[-1].correct_top5 / found[-1].predictions


def utilization_percent(record: Record) -> float | None:
    """How busy the devices were in the timed segments.

    On CUDA the mean over devices of NVML's utilisation: the share of time in which any kernel ran. On a CPU the ranks'
    CPU time over what their threads could have used, ranks x threads x time; gloo's own threads and loader workers can
    lift it above 100: what they use is the strategy's cost.
    """
    if record.trial.device == "cuda":
        values = [facts.gpu_utilization_percent for facts in record.ranks]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known and len(known) == len(values) else None
    used_s = sum(facts.cpu_time_s for facts in record.ranks)
    threads = sum(facts.threads for facts in record.ranks)
    return 100 * used_s / (threads * training_time_s(record.timed_segments))


def cpu_percent_per_rank(record: Record) -> float:
    """Mean over ranks of CPU time over time: 100 is one core kept busy."""
    used_s = sum(facts.cpu_time_s for facts in record.ranks)
    return 100 * used_s / (len(record.ranks) * training_time_s(record.timed_segments))


def others_cpu_percent(record: Record) -> float | None:
    """What processes other than the ranks used of the usable CPUs while the trial was timed, on the node where it was most."""
    return max(others_cpu_percents(record), default=None)


def others_cpu_percents(record: Record) -> list[float]:
    """The same of every node; nothing where it was not counted."""
    found = []
    for node, (machine, machine_s) in enumerate(zip(machines(record), record.machines_cpu_time_s, strict=False)):
        ranks_s = sum(facts.cpu_time_s for facts in ranks_of_node(record, node))
        found.append(_others_percent(machine, machine_s, ranks_s, windows_of_node(record, node)))
    return found


def others_cpu_percent_in_blocks(record: Record) -> float | None:
    """The same while the causes were measured, on the node where it was most."""
    if record.explained is None:
        return None
    size, found = record.trial.ranks_per_node, []
    for node, machine in enumerate(machines(record)):
        uses = [use for use in record.explained.uses if use.rank // size == node]
        window = min(use.window_s[0] for use in uses), max(use.window_s[1] for use in uses)
        ranks_s = sum(use.cpu_time_s for use in uses)
        found.append(_others_percent(machine, uses[0].machine_cpu_time_s, ranks_s, [window]))
    return max(found)


def _others_percent(machine: dict[str, Any], machine_s: float, ranks_s: float, windows: list[Window]) -> float:
    available_s = machine["usable_cpus"] * sum(end - start for start, end in windows)
    return min(
        100.0, max(0.0, 100 * (machine_s - ranks_s) / available_s)
    )  # the kernel counts in ticks, mostly of 10 ms


def machines(record: Record) -> list[dict[str, Any]]:
    """Facts of every node's machine."""
    return record.nodes or [record.environment]


def ranks_of_node(record: Record, node: int) -> list[RankFacts]:
    """Ranks are placed node by node."""
    size = record.trial.ranks_per_node
    return record.ranks[node * size : (node + 1) * size]


def timed_windows(record: Record, rank: int) -> list[Window]:
    return [segment.windows_s[rank] for segment in record.timed_segments]


def windows_of_node(record: Record, node: int, warmup: bool = False) -> list[Window]:
    """Of each timed segment, from its first rank's start to its last one's end; with `warmup` of all segments."""
    ranks = [facts.rank for facts in ranks_of_node(record, node)]
    segments = record.segments if warmup else record.timed_segments
    windows = [[segment.windows_s[rank] for rank in ranks] for segment in segments]
    return [(min(start for start, _ in pairs), max(end for _, end in pairs)) for pairs in windows]


def epochs_per_timed_part(record: Record) -> float:
    """What a sum over all that was timed is to be multiplied by to be that of one epoch."""
    segments = record.timed_segments
    if record.trial.epochs is not None:
        return 1 / len(segments)
    assert record.steps_per_epoch is not None
    return record.steps_per_epoch / sum(segment.num_steps for segment in segments)


def first_step_s(steps: Steps) -> list[float]:
    """[rank] how long its very first step took, warm-up or not."""
    first = (steps["segment"] == 0) & (steps["step"] == 0)
    order = np.argsort(steps["rank"][first])
    return np.sum([steps[phase][first] for phase in PHASE_COLUMNS], axis=0)[order].tolist()


def measuring_overhead_percent(record: Record, steps: Steps) -> float:
    """What the marks of the clock cost of a step: of the rank on which it is most."""
    timed = ~steps["warmup"]
    step_s = np.sum([steps[phase] for phase in PHASE_COLUMNS], axis=0)
    return max(
        100 * facts.measuring_s_per_step / float(step_s[timed & (steps["rank"] == facts.rank)].mean())
        for facts in record.ranks
    )


def ranks_on_the_same_cpus(record: Record, facts: RankFacts) -> list[int]:
    """Other ranks of its node that may run on some of its CPUs."""
    node = facts.rank // record.trial.ranks_per_node
    others = [other for other in ranks_of_node(record, node) if other.rank != facts.rank]
    return [other.rank for other in others if set(other.affinity) & set(facts.affinity)]


def peak_memory_MiB(record: Record, kind: str) -> float | None:
    """The largest rank's peak in MiB; kind is "memory" (resident), "allocated" or "reserved" (CUDA)."""
    values = [getattr(facts, f"peak_{kind}_bytes") for facts in record.ranks]
    return None if any(value is None for value in values) else max(values) / MIB


def checkpoint_time_s(record: Record) -> float | None:
    """Mean over the checkpoints, each the slowest rank's; None without one."""
    times_s = record.checkpoint_times_s
    return sum(times_s) / len(times_s) if times_s else None


def scaling_efficiency(speedup: float, devices: int) -> float:
    """X(N) / (N X(1)): 1 is linear scaling, weak or strong."""
    return speedup / devices


def warnings(record: Record, steps: Steps | None = None) -> list[str]:
    """What a reader must know before trusting the record's times."""
    found = []
    if record.oversubscribed:
        trial = record.trial
        found.append(
            f"oversubscribed: {trial.ranks_per_node} ranks x {trial.threads_per_rank} threads on "
            f"{record.environment['usable_cpus']} usable CPUs"
        )
    if (record.launch.get("slurm") or {}).get("shared"):
        found.append("shared nodes: other jobs may have run on them")
    found += (record.survey or {}).get("slow", [])
    found += _of_its_search(record)
    found += _of_affinity(record)
    overhead = None if steps is None else measuring_overhead_percent(record, steps)
    if overhead is not None and overhead > FLAG_OVERHEAD_ABOVE_PERCENT:
        found.append(f"measuring takes {overhead:.1f} % of a step")
    others = others_cpu_percent(record)
    if others is not None and others > FLAG_OTHERS_ABOVE_PERCENT:
        found.append(f"other processes used {others:.0f} % of the CPUs")
    others = others_cpu_percent_in_blocks(record)
    if others is not None and others > FLAG_OTHERS_ABOVE_PERCENT:
        found.append(f"other processes used {others:.0f} % of the CPUs while causes were measured")
    return found


def _of_affinity(record: Record) -> list[str]:
    """Ranks that are pinned so that they share CPUs: some but not all, or fewer than their threads. All ranks on all CPUs is
    what no pinning looks like, and `oversubscribed` says if those don't suffice."""
    found = []
    for node in range(record.trial.nodes):
        ranks = ranks_of_node(record, node)
        if len({tuple(facts.affinity) for facts in ranks}) == 1:
            continue
        for facts in ranks:
            shared_with = [rank for rank in ranks_on_the_same_cpus(record, facts) if rank > facts.rank]
            if shared_with:
                shared = ", ".join(map(str, shared_with))
                found.append(f"pinning: rank {facts.rank} shares CPUs with rank {shared}")
    return found


def _of_its_search(record: Record) -> list[str]:
    """What the search for the largest batch says of it."""
    search = record.launch.get("largest_batch")
    if search is None:
        return []
    found = []
    if search["fits"] == search["limit"]:
        found.append("largest batch: the training samples are the limit and not the memory")
    if search["device_model"] != record.environment["device_model"]:
        found.append(f"largest batch: found on another kind of device, {search['device_model']}")
    return found
