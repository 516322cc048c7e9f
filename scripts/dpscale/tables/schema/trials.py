"""Tables of trials and of the cells that they repeat."""

from dpscale.phases import STARTUP_PARTS
from dpscale.tables.schema.cells import AMOUNTS, CELL, ESTIMATED, IDENTITY, PLACEBO_OF, RATES, STATUS

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
    "configuration": "digest of what is trained and how, on whatever topology: alike for repeats and for variants that differ in name and explain alone",
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
    "speedup_spread": "what these lows and highs are: a 95 % interval from 6 repeats of both on, else the range of all quotients, of 1 and 3 repeats, say",
    "noise_floor_percent": "of the placebo: the largest difference between it and its twin that low and high let in, in %",
    "effective_precision": TIMINGS["effective_precision"],
    "base_cell": "strategy/launcher/topology of the base: one device, all else equal; empty without one (n/a)",
    "warnings": "what to know before trusting this row",
}
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
TEXTS = {"effective_precision", "epoch_time_source", "host", "device_model", "started_at", "ended_at", "warnings"}
TEXTS |= {"spread", "speedup_spread", "base_cell", "configuration"}
TEXTS |= {"record", "record_sha256", "code_digest", "commit"}
