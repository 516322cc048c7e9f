"""The only table schema: name of a table -> its columns, and what each means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpscale import metrics
from dpscale.causes import CAUSES, EPOCH_COSTS
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
    "spread": "what low and high of a step's columns are: a 95 % interval from 6 rounds on, else the range",
    "epoch_spread": "the same of the costs per epoch, over timed epochs of all launches",
}
STRAGGLERS = {
    **{name: IDENTITY[name] for name in CELL},
    "rank": "0-based",
    "node": "its name; a rank that was on another node in another launch has a row for each",
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
TABLES = {
    "timings": TIMINGS,
    "summary": SUMMARY,
    "losses": LOSSES,
    "evaluations": EVALUATIONS,
    "causes": CAUSES_OF_CELLS,
    "stragglers": STRAGGLERS,
}
TEXTS = {"experiment", "strategy", "base", "launcher", "device", "precision", "scaling", "status", "reason"}
TEXTS |= {"effective_precision", "epoch_time_source", "host", "started_at", "ended_at", "warnings"}
TEXTS |= {"spread", "speedup_spread", "base_cell", "unexplained_because", "epoch_spread", "node"}


def frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    unknown = {name for row in rows for name in row} - TABLES[table].keys()
    assert not unknown, f"columns {unknown} are not in TABLES[{table!r}]"
    frame = pd.DataFrame(rows, columns=list(TABLES[table]))
    found = {column: "Int64" for column in ("batch_size_per_device", "global_batch_size", "rounds") if column in frame}
    return frame.astype(found)  # whole numbers, also beside empty ones


def identity(trial: Trial, names: Sequence[str] = tuple(IDENTITY)) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in names}
