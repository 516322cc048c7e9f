"""Tables of what is concluded from the others: predictions and advice."""

from dpscale.scaling_model.prediction import PARTS
from dpscale.tables.schema.cells import CELL, IDENTITY

PREDICTION = {
    **{name: IDENTITY[name] for name in CELL},
    "model": "what predicted it: measured parts, which is this project's, or a simpler law that is fitted to the same launches",
    "predicted_at": "UTC time at which it was written into the ledger",
    "calibrated_up_to": "devices of the largest trials that it was made from",
    "calibrating": "whether trials of this topology are among them: then it predicts nothing",
    "in_advance": "whether it was written before the launches that it is held against began; empty where that can't be told",
    "current": "whether it is the latest prediction of this topology",
    "predicted_epoch_time_s": "training time of one epoch, in s",
    "predicted_epoch_time_s_low": "lower end of predicted_epoch_time_s: with the upper one, where four of five launches should be",
    "predicted_epoch_time_s_high": "upper end of predicted_epoch_time_s",
    "predicted_95_low_s": "lower end of the interval where 19 of 20 launches should be",
    "predicted_95_high_s": "its upper end",
    "measured_epoch_time_s": "median over the launches that it is held against: of each repeat the first of the same configuration that began later, or without any the last before; empty with neither. Those of variants that are trained alike and of the placebo are among them, as in no other table",
    "measured_epoch_time_s_low": "lower end of measured_epoch_time_s",
    "measured_epoch_time_s_high": "upper end of measured_epoch_time_s",
    "spread": "what these two are: a 95 % interval from 6 launches on, else the range",
    "launches": "that it is held against",
    "error_percent": "predicted less measured, as a share of measured, in %",
    "verdict": "hit: the measured median is between low and high; miss; not measured yet; calibrated from; or not comparable, and why",
    "launches_inside": "launches between low and high",
    "scaling_efficiency": "predicted X(N) / (N X(1))",
    "steps": "of an epoch",
    **PARTS,
    "epoch_fixed_s": "of an epoch, whatever its steps: start and end of the loader",
    "limited_by": "what takes most of the scaling efficiency, against one device: a part of the step, or of fixed costs what more "
    "devices have to bear; nothing, where none takes a hundredth",
    "limited_by_share": "of the efficiency that it takes, in parts of 1; all losses together take 1 - scaling_efficiency",
    "code": "digest of the predicting code",
    "ledger_last_line": "digest of the last line of ledger.jsonl when the table was made: one that lacks it has lost launches",
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
TEXTS = {"predicted_at", "limited_by", "code", "ledger_last_line"}
TEXTS |= {"about", "question", "support", "why", "next_step", "missing", "cell", "follows_from"}
