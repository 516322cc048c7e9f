"""The only table schema: name of a table -> its columns, and what each means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpscale import metrics
from dpscale.explaining.causes import CAUSES, EPOCH_COSTS
from dpscale.phases import STARTUP_PARTS
from dpscale.record import Record
from dpscale.scaling_model.prediction import PARTS
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
PLACEBO_OF = {"placebo_of": "of the placebo: the strategy that it measures again under another name; else empty"}
STATUS = {
    "status": "ok, unavailable (a need of the strategy is not met here) or missing (planned, but not measured yet)",
    "reason": "why it is not ok",
}
ESTIMATED = {
    "epoch_time_s": "training time of one epoch, in s; evaluation is apart",
    "step_time_s": "median over steps of the slowest rank's time, in s",
    "throughput_samples_per_s": "delivered training samples of all ranks per second of training",
    "throughput_per_device_samples_per_s": "throughput of one device: throughput_samples_per_s / N",
    "evaluation_time_s": "time of one evaluation of the whole test set, in s",
    "evaluation_throughput_samples_per_s": "test samples per second",
    "epoch_with_evaluation_s": "epoch_time_s + evaluation_time_s",
    "utilization_percent": "CPU: CPU time of the ranks over ranks x threads x time, above 100 where gloo's own threads and loader workers work beside these; CUDA: NVML's utilisation",
    "peak_memory_MiB": "largest resident set of any rank (VmHWM), in MiB; shared pages count",
    "peak_allocated_MiB": "CUDA: largest peak of memory in tensors of any rank, in MiB",
    "peak_reserved_MiB": "CUDA: largest peak of memory held by torch's allocator of any rank, in MiB",
    "compile_time_s": "time that torch.compile took before the first step, in s; no part of any other time",
    "final_accuracy": "share of the predictions over the test set that is right at the end; empty where ranks hold different weights",
    "final_top5_accuracy": "share of them whose five likeliest classes hold the right one; empty with no more than five classes, too",
}
# rates, each with the amount and the time that it is made of: rate x time = amount on every row
RATES = {
    "throughput_samples_per_s": ("train_samples_per_epoch", "epoch_time_s"),
    "evaluation_throughput_samples_per_s": ("test_samples", "evaluation_time_s"),
}
AMOUNTS = {
    "train_samples_per_epoch": "samples of an epoch, all ranks: the mean of the timed ones, or steps per epoch x the mean of the timed steps",
    "test_samples": "samples of one evaluation, all ranks",
}
TIMINGS = {
    **IDENTITY,
    **PLACEBO_OF,
    "repeat": "0-based; each is a launch of its own",
    **STATUS,
    **ESTIMATED,
    "effective_precision": "dtypes of weights, compute, gradients and optimiser state, as far as they were seen",
    "attempts": "launches that it took: more than one after an interruption",
    "checkpoint_time_s": "mean time of a checkpoint, in s; in no other time; empty without one",
    "skipped_steps": "steps that the gradient scaler skipped, warm-up included; empty without one",
    "epoch_time_source": "measured, or computed from a number of steps",
    "data_wait_s": "mean time per step and rank until the batch was on the device, in s",
    "forward_s": "the same of the forward pass and the loss",
    "backward_s": "the same of the backward pass, with the exchange of gradients that overlaps it",
    "optimizer_s": "the same of the optimiser's update",
    "cpu_percent_per_rank": "mean CPU time of a rank over time: 100 is one core kept busy",
    "others_cpu_percent": "what other processes used of the usable CPUs meanwhile, on the node where it was most",
    "measuring_overhead_percent": "what the marks of the clock cost of a step, in %: timed after the steps, of the slowest rank",
    **AMOUNTS,
    "train_samples": "samples that the loader delivered in all timed steps, all ranks, counted step by step",
    "training_time_s": "time of the timed epochs or steps, in s",
    "outlier": "whether the epoch time lies beyond Tukey's fences of its cell's repeats; it is kept",
    "host": "host name of rank 0's machine",
    "device_model": "model of the GPUs; empty on a CPU",
    "started_at": "UTC time of the launch",
    "ended_at": "UTC time of its end",
    "warnings": "what to know before trusting this row",
}
SUMMARY = {
    **IDENTITY,
    **PLACEBO_OF,
    **STATUS,
    "repeats_planned": "launches that the config asks for",
    "repeats": "launches that were measured",
    **{
        column: text
        for name, meaning in ESTIMATED.items()
        for column, text in (
            (name, f"{f'{RATES[name][0]} / {RATES[name][1]}' if name in RATES else 'median over repeats'}: {meaning}"),
            (f"{name}_low", f"lower end of {name}"),
            (f"{name}_high", f"upper end of {name}"),
        )
    },
    "spread": "what low and high are: a 95 % interval from 6 repeats on, else the range",
    **AMOUNTS,
    "outliers": "repeats whose epoch time lies beyond Tukey's fences; they count as any other",
    "speedup": "throughput over that of the base cell: X(N) / X(1)",
    "speedup_low": "lower end of speedup",
    "speedup_high": "upper end of speedup",
    "scaling_efficiency": "speedup / N: 1 is linear scaling",
    "scaling_efficiency_low": "lower end of scaling_efficiency",
    "scaling_efficiency_high": "upper end of scaling_efficiency",
    "speedup_spread": "what these lows and highs are: a 95 % interval from 6 repeats of both on, else the range",
    "noise_floor_percent": "of the placebo: the largest difference between it and its twin that low and high let in, in %",
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
COMPARISONS = {
    **{name: IDENTITY[name] for name in ("experiment", "launcher", "nodes", "devices_per_node", "devices")},
    "strategy": "the one of the pair that comes later in the plan; placebo: against the cell that it repeats",
    "other": "the one that it is compared with",
    "verdict": "what the strategy is, against the other: faster, slower, no difference shown, or too few repeats",
    "throughput_ratio": "throughput of the strategy over that of the other",
    "throughput_ratio_low": "lower end of throughput_ratio",
    "throughput_ratio_high": "upper end of throughput_ratio",
    "spread": "what these are: a 95 % interval from 6 repeats of both on, else the range",
    "cliffs_delta": "share of the pairs of launches in which the strategy is faster, less the share in which it is slower",
    "p_value": "of Mann and Whitney's test of equal throughput, two-sided",
    "p_value_holm": "the same, adjusted by Holm's method for all pairs of this table; empty for the placebo, which stands alone",
    "repeats": "launches of the strategy that were measured",
    "other_repeats": "launches of the other that were measured",
    "repeats_needed": "launches of each from which on a difference could be shown at all",
    "differs_in": "what else the two differ in",
}
RUN = ["experiment", "launcher", "nodes", "devices_per_node", "devices", "device", "threads_per_rank"]
COLLECTIVES = {
    **{name: IDENTITY[name] for name in RUN},
    "world_size": "ranks that take part",
    "backend": "of torch.distributed",
    "operation": "which collective",
    "dtype": "of the array that is exchanged",
    "size_bytes": "S, in bytes: of the whole array, as nccl-tests counts it",
    "status": STATUS["status"],
    "reason": STATUS["reason"],
    "time_s": "median over blocks of the slowest rank's time of one call, in s",
    "time_s_low": "lower end of time_s",
    "time_s_high": "upper end of time_s",
    "time_p99_s": "99th percentile of the same, in s; empty with fewer than 100 blocks",
    "algbw_GB_per_s": "algorithm bandwidth, S / time_s, in decimal GB/s",
    "algbw_GB_per_s_low": "lower end of algbw_GB_per_s",
    "algbw_GB_per_s_high": "upper end of algbw_GB_per_s",
    "busbw_GB_per_s": "bus bandwidth: algbw_GB_per_s times nccl-tests' factor of the operation",
    "busbw_GB_per_s_low": "lower end of busbw_GB_per_s",
    "busbw_GB_per_s_high": "upper end of busbw_GB_per_s",
    "spread": "what low and high are: a 95 % interval from 6 blocks on, else the range",
    "copy_GB_per_s": "what the slowest rank copies within its device's memory per second while all do, in decimal GB/s",
    "blocks": "values: each is the time of a block of calls over their number",
    "calls_per_block": "calls of one block",
    "checked": "results whose values were compared with what they must be, over all ranks",
    "started_at": "UTC time of the launch",
    "warnings": "what to know before trusting this row",
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
    "utilization_percent": "GPUs: NVML's share of time in which any kernel ran, which says nothing of how full they were; ranks: CPU time over threads x time, above 100 where gloo's own threads and loader workers work beside these",
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
    "utilization_percent": "ranks: CPU time over threads x time since the sample before, as in the table monitor; GPUs: as in the table monitor",
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
ESTIMATED_CAUSES = {
    "step_s": "a whole step of a round's full exchange, as mean over steps and ranks: the sum of the next nine columns, in s",
    **CAUSES,
    "loader_effect_s": "how much shorter the whole step is on a batch that stays on the device",
    "training_step_s": "a step of the timed epochs, for comparison: median over steps of the mean over ranks",
    **EPOCH_COSTS,
}


def _estimated(columns: Mapping[str, str]) -> dict[str, str]:
    """Each with its low and high beside it."""
    ends = {"": "", "_low": "lower end of ", "_high": "upper end of "}
    return {
        f"{name}{end}": f"{text}{name}" if text else meaning
        for name, meaning in columns.items()
        for end, text in ends.items()
    }


CAUSES_OF_CELLS = {
    **{name: IDENTITY[name] for name in CELL},
    **STATUS,
    "unexplained_because": "why a measured cell has no causes; its costs per epoch it has all the same",
    "repeats": "launches that were measured",
    "rounds": "rounds of blocks in all of them: what medians and intervals are over",
    **_estimated(ESTIMATED_CAUSES),
    "unexplained_percent": "size of unexplained_s, as a share of step_s in %",
    "beside_training_percent": "how much longer step_s is than training_step_s, in %: far from 0, other than the training is explained",
    "others_cpu_percent": "what other processes used of the usable CPUs while causes were measured, in the launch where it was most",
    "spread": "what low and high of a step's columns are: a 95 % interval from 6 rounds on, else the range",
    "epoch_spread": "the same of the costs per epoch, over timed epochs of all launches",
}
STRAGGLERS = {
    **{name: IDENTITY[name] for name in CELL},
    "rank": "0-based",
    "node_name": "SLURM's name of it, else the host's; a rank that was on another node in another launch has a row for each",
    "local_rank": "its number on that node",
    "rounds": "rounds of blocks on that node: what medians and intervals are over",
    "rounds_last": "in how many of them it was, by its local delay, the last of all ranks",
    **_estimated(
        {
            "local_delay_s": "how much later than the other ranks it had its first bucket ready, before it waits for anyone, in s",
            "step_cost_s": "how long the others waited per step, on average, as it came last: below its delay where they use the time",
            "step_s": "a whole step of this rank",
            **CAUSES,
        }
    ),
    "spread": CAUSES_OF_CELLS["spread"],
}
PUBLISHED = {
    "experiment": IDENTITY["experiment"],
    "reference_set": "which of the experiment's `references` the number belongs to",
    "whose": "published: somebody else's, on a machine of theirs; ours: measured by this experiment",
    "source": "where a published number stands; of ours the cell",
    "system": "whose machine",
    "device_model": "its devices, as the source names them; of ours cpu or cuda",
    "model": "model and data, as the source names them",
    "strategy": "as the source names it; of ours the variant's name",
    "precision": "as the source names it; of ours as asked for",
    "batch_size_per_device": "samples per device and step; empty where the source does not say",
    "nodes": IDENTITY["nodes"],
    "devices": "number of devices in all",
    "quantity": "what the number is, in our words; epoch_with_evaluation_s where a source's epoch holds both",
    "published_as": "the metric's name in workflow/references; empty for ours",
    "value": "the number; of ours the median over repeats",
    "value_low": "lower end of value; published ones have none",
    "value_high": "upper end of value; published ones have none",
    "spread": "what low and high are: a 95 % interval from 6 repeats on, else the range",
    "unit": "of value",
    "reference_cell": "what speedup_vs_reference is over: the set's reference, of the same source, or ours that is the same",
    "speedup_vs_reference": "how many times as many samples per second as the reference cell, whatever else differs",
    "speedup_vs_reference_low": "lower end of speedup_vs_reference",
    "speedup_vs_reference_high": "upper end of speedup_vs_reference",
    "differs_in": "in what it differs from the reference cell beside its speed",
    "measured_cell": "ours that is the same strategy on as many devices in the same precision; empty without one that was measured",
    "measured_over_published": "our value over the published one",
    "measured_over_published_low": "lower end of measured_over_published",
    "measured_over_published_high": "upper end of measured_over_published",
    "measured_differs_in": "in what ours differs from the published one beside the machine",
    "status": STATUS["status"],
    "reason": STATUS["reason"],
    "note": "what workflow/references says of the number",
}
CHANGES = {
    **{name: IDENTITY[name] for name in ("experiment", "strategy", "launcher", "nodes", "devices_per_node", "devices")},
    "verdict": "what the cell is after, against before: faster, slower, no difference shown, too few repeats; or why the two "
    "are not compared",
    "epoch_time_before_s": "median over repeats of the training time of one epoch, before, in s",
    "epoch_time_after_s": "the same after",
    "throughput_ratio": "throughput after over throughput before: below 1 it became slower",
    "throughput_ratio_low": "lower end of throughput_ratio",
    "throughput_ratio_high": "upper end of throughput_ratio",
    "spread": COMPARISONS["spread"],
    "cliffs_delta": "share of the pairs of launches in which the one after is faster, less the share in which it is slower",
    "p_value": COMPARISONS["p_value"],
    "p_value_holm": "the same, adjusted by Holm's method for all cells that are compared",
    "repeats_before": "launches that were measured before",
    "repeats_after": "launches that were measured after",
    "repeats_needed": "launches of each from which on a difference could be shown at all",
    "differs_in": "settings of the cell that are not the same, so that it is not compared",
}
ENVIRONMENT_CHANGES = {
    "fact": "what is not the same, as records name it; settings.NAME is a variable of the environment",
    "before": "its value before; several where launches differ; empty where records don't have it",
    "after": "its value after",
    "of_the_class": "whether it is one of those that the records of one table must share",
}
OF_TWO_SETS = {"changes": CHANGES, "environment_changes": ENVIRONMENT_CHANGES}  # of no experiment: see compare.py
PREDICTION = {
    **{name: IDENTITY[name] for name in CELL},
    "model": "what predicted it: measured parts, which is this project's, or a simpler law that is fitted to the same launches",
    "predicted_at": "UTC time at which it was written into the ledger",
    "calibrated_up_to": "devices of the largest trials that it was made from",
    "calibrating": "whether trials of this topology are among them: then it predicts nothing",
    "in_advance": "whether no launch of this topology was there yet",
    "current": "whether it is the latest prediction of this topology",
    "predicted_epoch_time_s": "training time of one epoch, in s",
    "predicted_epoch_time_s_low": "lower end of predicted_epoch_time_s: with the upper one, where four of five launches should be",
    "predicted_epoch_time_s_high": "upper end of predicted_epoch_time_s",
    "predicted_95_low_s": "lower end of the interval where 19 of 20 launches should be",
    "predicted_95_high_s": "its upper end",
    "measured_epoch_time_s": "median over the launches that were measured since, or before; empty without any",
    "measured_epoch_time_s_low": "lower end of measured_epoch_time_s",
    "measured_epoch_time_s_high": "upper end of measured_epoch_time_s",
    "spread": "what these two are: a 95 % interval from 6 launches on, else the range",
    "launches": "that were measured",
    "error_percent": "predicted less measured, as a share of measured, in %",
    "verdict": "hit: the measured median is between low and high; miss; not measured yet; or calibrated from",
    "launches_inside": "launches between low and high",
    "scaling_efficiency": "predicted X(N) / (N X(1))",
    "steps": "of an epoch",
    **PARTS,
    "epoch_fixed_s": "of an epoch, whatever its steps: start and end of the loader",
    "limited_by": "the part that takes most beyond compute; compute, where that takes more than all others",
    "code": "digest of the predicting code",
}
ADVICE = {
    "experiment": IDENTITY["experiment"],
    "about": "what the sentence is about; in_short is what the others come to",
    "question": "the question that it answers",
    "support": "shown: intervals and tests say so; partly shown: what is open is in missing; withheld: they don't, or there are none",
    "verdict": "the answer",
    "why": "what it rests on",
    "next_step": "what to do next",
    "missing": "the measurement or setting that would decide what is open",
    "cell": "strategy/launcher/topology that it is about",
    "value": "the number in the answer",
    "value_low": "lower end of value",
    "value_high": "upper end of value",
    "spread": "what low and high are: an interval, or with too few launches the range",
    "unit": "of value",
    "follows_from": "files of the experiment, their columns, and the cells whose rows it follows from",
    "warnings": "what to know before trusting it",
}
TABLES = {
    "timings": TIMINGS,
    "summary": SUMMARY,
    "comparisons": COMPARISONS,
    "losses": LOSSES,
    "evaluations": EVALUATIONS,
    "causes": CAUSES_OF_CELLS,
    "stragglers": STRAGGLERS,
    "monitor": MONITOR,
    "timeline": TIMELINE,
    "startup": STARTUP,
    "records": RECORDS,
    "collectives": COLLECTIVES,
    "published": PUBLISHED,
    "prediction": PREDICTION,
    "advice": ADVICE,
}
MADE_APART = {"collectives", "prediction", "advice"}  # not from the records of trials
WHOLE_NUMBERS = {"batch_size_per_device", "global_batch_size", "rank", "samples", "other_processes", "rounds"}
WHOLE_NUMBERS |= {"launches", "launches_inside", "repeats_needed"}
TEXTS = {"experiment", "strategy", "base", "launcher", "device", "precision", "scaling", "status", "reason"}
TEXTS |= {"effective_precision", "epoch_time_source", "host", "started_at", "ended_at", "warnings"}
TEXTS |= {"record", "record_sha256", "code_digest", "commit"}
TEXTS |= {"kind", "name", "affinity", "shares_cpus_with", "throttle_reasons"}
TEXTS |= {"spread", "speedup_spread", "base_cell", "placebo_of", "other", "verdict", "differs_in"}
TEXTS |= {"unexplained_because", "epoch_spread", "node_name"}
TEXTS |= {"backend", "operation", "dtype"}
TEXTS |= {"reference_set", "whose", "source", "system", "device_model", "model", "quantity", "published_as", "unit"}
TEXTS |= {"reference_cell", "measured_cell", "measured_differs_in", "note"}
TEXTS |= {"fact", "before", "after"}
TEXTS |= {"model", "predicted_at", "limited_by", "code"}
TEXTS |= {"about", "question", "support", "why", "next_step", "missing", "cell", "follows_from"}


def frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    columns = (TABLES | OF_TWO_SETS)[table]
    unknown = {name for row in rows for name in row} - columns.keys()
    assert not unknown, f"columns {unknown} are not those of the table {table!r}"
    frame = pd.DataFrame(rows, columns=list(columns))
    found = {column: "Int64" for column in WHOLE_NUMBERS if column in frame}
    return frame.astype(found)  # whole numbers, also beside empty ones


def identity(trial: Trial, names: Sequence[str] = tuple(IDENTITY)) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in names}
