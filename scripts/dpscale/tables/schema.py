"""The only table schema: name of a table -> its columns, and what each means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpscale import metrics
from dpscale.phases import STARTUP_PARTS
from dpscale.record import Record
from dpscale.trial import Trial

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
    "others_cpu_percent": "what other processes used of the usable CPUs meanwhile, on the node where it was most",
    "measuring_overhead_percent": "what the marks of the clock cost of a step, in %: timed after the steps, of the slowest rank",
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
OF_A_NODE = {
    "node": "number of the machine within the trial, from 0",
    "kind": "rank, gpu, package (of CPUs), machine (all its processes) or monitor (what sampling itself used)",
    "name": "the rank's number, the GPU's UUID, the package's name",
}
MONITOR = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    **OF_A_NODE,
    "rank": "the rank that it is, or that drives it",
    "samples": "how many fell into the timed steps; means are over these",
    "cpu_percent": "CPU time over time in the timed steps, 100 is one CPU kept busy; of ranks as the kernel counts it",
    "others_cpu_percent": "what processes other than the ranks used of the usable CPUs meanwhile",
    "utilization_percent": "GPUs: NVML's share of time in which any kernel ran, which says nothing of how full they were; ranks: CPU time over threads x time",
    "memory_MiB": "mean; ranks: resident (RSS), without loader workers; GPUs: taken by all processes, contexts included",
    "peak_memory_MiB": "largest resident set (VmHWM); shared pages count in every rank",
    "proportional_memory_MiB": "resident after the steps, shared pages divided among those that share them (PSS): adds up over ranks",
    "affinity": "CPUs that the rank may run on",
    "shares_cpus_with": "ranks of the same node that may run on some of them",
    "power_w": "mean, in W",
    "idle_power_w": "lowest power before the first step, while ranks were starting, in W",
    "energy_per_epoch_J": "energy of one epoch's training, in J, by the device's counter; coarse where an epoch has few samples",
    "sm_clock_MHz": "mean clock of the multiprocessors",
    "memory_clock_MHz": "mean clock of the memory",
    "temperature_C": "highest, in degrees Celsius",
    "throttle_reasons": "why clocks were held back, with the share of samples; empty if never, or if not told",
    "other_processes": "processes beside the rank's that had a context on the GPU, at most",
    "reason": "why there are no samples",
}
TIMELINE = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    **OF_A_NODE,
    "time_s": "since the first step, in s; before it ranks were starting",
    "utilization_percent": "ranks: CPU time over threads x time since the sample before; GPUs: as in the table monitor",
    "memory_MiB": MONITOR["memory_MiB"],
    "power_w": "in W; of a CPU package since the sample before",
    "sm_clock_MHz": "clock of the multiprocessors",
    "temperature_C": "in degrees Celsius",
}
STARTUP = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    "rank": "which process",
    **STARTUP_PARTS,
    "first_step_s": "the first step, warm-up or not",
}
RECORDS = {
    **{name: IDENTITY[name] for name in CELL},
    "repeat": TIMINGS["repeat"],
    **STATUS,
    "record": "its record.json, below the results folder; that holds the command that measures the trial again",
    "record_sha256": "digest of that file, which holds the digests of those beside it",
    "code_digest": "of the measuring code",
    "commit": "of the checkout; -dirty where files differed from it",
    "started_at": TIMINGS["started_at"],
}
TABLES = {
    "timings": TIMINGS,
    "summary": SUMMARY,
    "losses": LOSSES,
    "evaluations": EVALUATIONS,
    "monitor": MONITOR,
    "timeline": TIMELINE,
    "startup": STARTUP,
    "records": RECORDS,
}
WHOLE_NUMBERS = ("batch_size_per_device", "global_batch_size", "rank", "samples", "other_processes")
TEXTS = {"experiment", "strategy", "base", "launcher", "device", "precision", "scaling", "status", "reason"}
TEXTS |= {"effective_precision", "epoch_time_source", "host", "started_at", "ended_at", "warnings"}
TEXTS |= {"record", "record_sha256", "code_digest", "commit"}
TEXTS |= {"kind", "name", "affinity", "shares_cpus_with", "throttle_reasons"}
TEXTS |= {"spread", "speedup_spread", "base_cell"}


def frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    unknown = {name for row in rows for name in row} - TABLES[table].keys()
    assert not unknown, f"columns {unknown} are not in TABLES[{table!r}]"
    frame = pd.DataFrame(rows, columns=list(TABLES[table]))
    found = {column: "Int64" for column in WHOLE_NUMBERS if column in frame}
    return frame.astype(found)  # whole numbers, also beside empty ones


def identity(trial: Trial, names: Sequence[str] = tuple(IDENTITY)) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in names}
