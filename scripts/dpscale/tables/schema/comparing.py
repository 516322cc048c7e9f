"""Tables of pairs: of strategies, of ours and published numbers, of before and after."""

from dpscale.tables.schema.cells import IDENTITY, STATUS

COMPARISONS = {
    **{name: IDENTITY[name] for name in ("experiment", "launcher", "nodes", "devices_per_node", "devices")},
    "strategy": "the one of the pair that comes later in the plan; placebo: against the cell that it repeats",
    "other": "the one that it is compared with",
    "verdict": "what the strategy is, against the other: faster, slower, no difference shown, or too few repeats",
    "throughput_ratio": "throughput of the strategy over that of the other",
    "throughput_ratio_low": "lower end of throughput_ratio",
    "throughput_ratio_high": "upper end of throughput_ratio",
    "spread": "what these are: a 95 % interval from 6 repeats of both on, else the range of all quotients, of 1 and 3 repeats, say",
    "cliffs_delta": "share of the pairs of launches in which the strategy is faster, less the share in which it is slower",
    "p_value": "of Mann and Whitney's test of equal throughput, two-sided",
    "p_value_holm": "the same, adjusted by Holm's method for all pairs that have enough launches; empty for those with too few, "
    "and for the placebo, which stands alone",
    "repeats": "launches of the strategy that were measured",
    "other_repeats": "launches of the other that were measured",
    "repeats_needed": "launches of each from which on a difference could be shown at all; of a pair with too few, if all "
    "pairs had as many",
    "differs_in": "what else the two differ in",
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
SETS = {
    "set_before": "name of the first set, a snapshot or a folder of results, and from when to when it was measured",
    "set_after": "the same of the second",
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
    "p_value_holm": "the same, adjusted by Holm's method for all cells that have enough launches; empty for those with too few",
    "repeats_before": "launches that were measured before",
    "repeats_after": "launches that were measured after; without those of repeats_shared",
    "repeats_shared": "launches that are in both sets; they count as measured before alone",
    "repeats_needed": "launches of each from which on a difference could be shown at all; of a cell with too few, if all "
    "cells had as many",
    "differs_in": "settings of the cell that are not the same, so that it is not compared",
    **SETS,
}
ENVIRONMENT_CHANGES = {
    "fact": "what is not the same, as records name it; settings.NAME is a variable of the environment",
    "before": "its value before; several where launches differ; empty where records don't have it",
    "after": "its value after",
    "of_the_class": "whether it is one of those that the records of one table must share",
    **SETS,
}
TEXTS = {"other", "verdict", "differs_in"}
TEXTS |= {"reference_set", "whose", "source", "system", "model", "quantity", "published_as", "unit", "note"}
TEXTS |= {"reference_cell", "measured_cell", "measured_differs_in"}
TEXTS |= {"fact", "before", "after", *SETS}
