"""Records -> tables: every planned trial has its row, compared with a base that differs in nothing but N."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from factories import (
    LAUNCH,
    MACHINE,
    a_record,
    a_segment,
    a_single_trial,
    a_trial,
    an_evaluation,
    an_unavailable_record,
    explained_record,
    measured,
    repeats,
    samples_of,
    steps_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dpscale.environment import CLASS_FACTS
from dpscale.errors import UserError
from dpscale.references import published, sets_of
from dpscale.tables import make_tables, read_table
from dpscale.tables.schema import MADE_APART, TABLES, TEXTS
from dpscale.tables.schema.cells import ESTIMATED
from dpscale.tables.summary import summarize

SINGLE, DDP = a_single_trial(), a_trial()
PUBLISHED = sets_of(["hfai_resnet50"], published())


def summary_of(*cells) -> pd.DataFrame:
    return make_tables([item for cell in cells for item in cell])["summary"].set_index("strategy")


def unavailable(trial, reason="needs CUDA devices"):
    return trial, an_unavailable_record(trial, reason), None


def missing(trial):
    return trial, None, None


OF_TRIALS = [table for table in TABLES if table not in MADE_APART]


@pytest.mark.parametrize("table", OF_TRIALS)
def test_columns_are_those_of_the_schema_in_its_order(table):
    assert list(make_tables([measured()])[table].columns) == list(TABLES[table])


@pytest.mark.parametrize("table", OF_TRIALS)
def test_columns_are_the_same_where_nothing_was_measured(table):
    assert list(make_tables([missing(DDP), unavailable(SINGLE)])[table].columns) == list(TABLES[table])


@pytest.mark.parametrize("table", TABLES)
def test_every_column_says_what_it_means(table):
    assert all(len(meaning) > 5 for meaning in TABLES[table].values())


# One row per trial


def test_timings_have_a_row_per_planned_trial_in_the_order_of_the_plan():
    trials = [replace(trial, repeat=repeat) for repeat in range(2) for trial in (SINGLE, DDP)]
    timings = make_tables([measured(trials[0]), missing(trials[1]), unavailable(trials[2]), missing(trials[3])])[
        "timings"
    ]
    assert timings.status.tolist() == ["ok", "missing", "unavailable", "missing"]
    assert list(zip(timings.strategy, timings.repeat, strict=True)) == [(t.strategy, t.repeat) for t in trials]


def test_a_timing_is_what_the_metrics_say():
    row = make_tables([measured(DDP, 4.0)])["timings"].iloc[0]
    assert row.epoch_time_s == 4.0
    assert row.throughput_samples_per_s == 2 * 64 / 4.0
    assert row.step_time_s == 2.0
    assert row.evaluation_time_s == 1.0
    assert row.evaluation_throughput_samples_per_s == 100
    assert row.epoch_with_evaluation_s == 5.0
    assert row.final_accuracy == 0.9
    assert row.peak_memory_MiB == 300
    assert row.train_samples_per_epoch == 128
    assert (row.status, row.reason, row.host) == ("ok", "", "laptop")


def test_what_was_not_measured_is_empty_and_not_zero():
    row = make_tables([measured(replace(DDP, evaluate=False))])["timings"].iloc[0]
    empty = ["evaluation_time_s", "epoch_with_evaluation_s", "final_accuracy", "peak_reserved_MiB"]
    assert row[empty].isna().all()


def test_a_row_without_a_record_says_why_and_has_no_numbers():
    timings = make_tables([missing(SINGLE), unavailable(DDP, "needs NVIDIA apex: not installed")])["timings"]
    assert timings.reason.tolist() == ["not measured yet", "needs NVIDIA apex: not installed"]
    assert timings[list(ESTIMATED)].isna().all(axis=None)


# One row per cell


def test_a_cell_is_the_median_of_its_repeats_with_their_range():
    cell = summary_of(repeats(DDP, [4.0, 1.0, 2.0])).loc["ddp"]
    assert (cell.epoch_time_s, cell.epoch_time_s_low, cell.epoch_time_s_high) == (2.0, 1.0, 4.0)
    assert (cell.repeats, cell.repeats_planned, cell.spread) == (3, 3, "range of 3")


def test_from_six_repeats_on_a_cell_has_an_interval():
    assert summary_of(repeats(DDP, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).loc["ddp"].spread == "95 % interval"


def test_a_missing_repeat_is_told_and_the_others_count():
    cell = summary_of([*repeats(DDP, [2.0, 4.0]), missing(replace(DDP, repeat=2))]).loc["ddp"]
    assert (cell.status, cell.repeats, cell.repeats_planned) == ("ok", 2, 3)
    assert cell.reason == "1 of 3 repeats missing"
    assert cell.epoch_time_s == 3.0


@pytest.mark.parametrize(("row", "status"), [(missing(DDP), "missing"), (unavailable(DDP), "unavailable")])
def test_a_cell_without_a_measurement_keeps_status_and_reason_and_has_no_number(row, status):
    summary = summary_of(repeats(SINGLE, [2.0]), [row])
    assert summary.loc["ddp"].status == status
    assert summary.loc["ddp"].reason == row[1].reason if row[1] else "not measured yet"
    assert summary.loc["ddp", [*ESTIMATED, "speedup", "scaling_efficiency"]].isna().all()


# Speed-ups and their base


def test_the_bases_speedup_is_exactly_one():
    summary = summary_of(repeats(SINGLE, [3.0, 1.1, 1.7]))
    columns = ["speedup", "speedup_low", "speedup_high", "scaling_efficiency"]
    assert summary.loc["single", columns].tolist() == [1, 1, 1, 1]


@settings(max_examples=25)
@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=8))
def test_it_is_exactly_one_whatever_was_measured(epochs_s):
    assert summary_of(repeats(SINGLE, epochs_s)).loc["single"].speedup == 1.0


def test_a_speedup_is_throughput_over_that_of_single_and_efficiency_its_share():
    # weak scaling: in the time of 64 samples on one device, 128 on two in 1.25 times that
    cell = summary_of(repeats(SINGLE, [2.0, 2.0]), repeats(DDP, [2.5, 2.5])).loc["ddp"]
    assert cell.speedup == pytest.approx(2 / 1.25)
    assert cell.scaling_efficiency == pytest.approx(0.8)
    assert cell.base_cell == "single/spawn/1x1"


def test_ratios_are_of_medians_with_the_range_of_all_quotients():
    cell = summary_of(repeats(SINGLE, [1.0, 2.0, 4.0]), repeats(DDP, [2.0, 4.0, 8.0])).loc["ddp"]
    assert (cell.speedup, cell.speedup_low, cell.speedup_high) == (1.0, 0.25, 4.0)
    assert cell.speedup_spread == "range of 3"


def test_a_cell_launched_once_over_a_base_launched_three_times_has_a_range_of_both() -> None:
    cell = summary_of(repeats(SINGLE, [4.0, 4.2, 4.4]), repeats(DDP, [2.0])).loc["ddp"]
    assert cell.speedup_low < cell.speedup < cell.speedup_high
    assert (cell.spread, cell.speedup_spread) == ("one value", "range of 1 and 3")


def test_without_one_device_there_is_no_speedup():
    cell = summary_of(repeats(DDP, [2.0])).loc["ddp"]
    assert pd.isna(cell.speedup)
    assert pd.isna(cell.scaling_efficiency)
    assert cell.base_cell == ""


def test_without_single_the_base_is_the_same_strategy_and_launcher_on_one_device():
    one = replace(DDP, devices_per_node=1, world_size=1)
    other = replace(one, launcher="torchrun")
    tables = make_tables([measured(one, 2.0), measured(other, 4.0), measured(DDP, 2.0)])
    two = tables["summary"].query("devices == 2").iloc[0]
    assert (two.base_cell, two.speedup) == ("ddp/spawn/1x1", 2.0)


def test_another_strategy_than_single_is_no_base():
    one = replace(DDP, strategy="mine", devices_per_node=1, world_size=1)
    assert summary_of([measured(one)], [measured(DDP)]).loc["ddp"].base_cell == ""


def test_a_base_of_another_precision_is_none():
    summary = summary_of(repeats(replace(SINGLE, precision="bf16"), [2.0]), repeats(DDP, [2.0]))
    assert summary.loc["ddp"].base_cell == ""


def test_each_precision_has_its_own_base():
    half = replace(SINGLE, strategy="half", precision="bf16")
    summary = summary_of(
        repeats(SINGLE, [4.0]),
        repeats(half, [2.0]),
        repeats(replace(DDP, strategy="ddp_half", precision="bf16"), [2.0]),
    )
    assert summary.loc["ddp_half"].base_cell == "half/spawn/1x1"
    assert summary.loc["half"].speedup == 1.0


@pytest.mark.parametrize("fact", ["compile", "channels_last"])
def test_a_base_that_was_made_faster_by_other_means_is_none(fact):
    summary = summary_of(repeats(SINGLE, [2.0]), repeats(replace(DDP, **{fact: True}), [2.0]))
    assert summary.loc["ddp"].base_cell == ""


def test_other_dtypes_than_the_bases_are_said():
    """Precision as asked for is the same; what was seen is not."""
    seen = {"weights": "float32", "compute": "float16", "optimizer_state": "float32"}
    summary = summary_of(repeats(SINGLE, [2.0]), [measured(DDP, effective_precision=seen)])
    assert summary.loc["ddp"].warnings == "other number formats than its base: compute float16, there float32"
    assert summary.loc["ddp"].effective_precision == "weights float32, compute float16, optimizer_state float32"
    assert summary.loc["single"].warnings == ""


@pytest.mark.parametrize("row", [missing(SINGLE), unavailable(SINGLE)])
def test_a_base_that_was_not_measured_is_none(row):
    assert summary_of([row], repeats(DDP, [2.0])).loc["ddp"].base_cell == ""


def test_a_base_with_a_missing_repeat_is_still_one():
    summary = summary_of([missing(SINGLE), *repeats(SINGLE, [2.0, 2.0])[1:]], repeats(DDP, [2.0]))
    assert summary.loc["single"].speedup == 1.0
    assert summary.loc["ddp"].speedup == 2.0


def test_a_repeat_of_a_failed_epoch_moves_no_other_cell():
    alone = summary_of(repeats(SINGLE, [2.0, 3.0])).loc["single"]
    beside = summary_of(repeats(SINGLE, [2.0, 3.0]), repeats(DDP, [9.0])).loc["single"]
    assert alone.equals(beside)


# Losses and evaluations


def test_losses_have_a_row_per_step_of_every_repeat():
    losses = make_tables(repeats(DDP, [2.0, 2.0]))["losses"]
    assert losses.groupby("repeat").samples_seen.apply(list).tolist() == [[64, 128, 192, 256, 320, 384]] * 2


def test_evaluations_have_a_row_per_segment_warm_up_included():
    evaluations = make_tables([measured(DDP)])["evaluations"]
    assert evaluations.warmup.tolist() == [True, False, False]
    columns = ["samples", "correct", "correct_top5", "loss", "learning_rate"]
    assert set(evaluations[columns].itertuples(index=False, name=None)) == {(100, 90, 99, 0.25, 0.5)}


def test_ranks_with_weights_of_their_own_are_counted_but_not_judged():
    segment = a_segment(evaluation=an_evaluation(correct=None, correct_top5=None, loss=None))
    record = a_record(segments=[segment])
    (row,) = make_tables([(DDP, record, steps_of(record))])["evaluations"].itertuples()
    assert row.samples == 100
    assert pd.isna(row.correct)
    assert pd.isna(row.correct_top5)
    assert pd.isna(row.loss)


# What is refused


def test_a_record_of_another_configuration_is_refused_by_its_trial():
    _, record, steps = measured(replace(DDP, seed=1))
    with pytest.raises(UserError, match=r"quickstart/ddp/spawn/1x2/r0: its record is of another configuration"):
        make_tables([(DDP, record, steps)])


@pytest.mark.parametrize("fact", CLASS_FACTS)
def test_records_of_different_machines_are_refused_by_the_name_of_the_fact(fact):
    other = measured(DDP, environment={**MACHINE, "node": "node7", fact: "another"})
    with pytest.raises(UserError, match=rf"{fact} is .* in .*single.* on laptop and 'another' in .*ddp.* on node7"):
        make_tables([measured(SINGLE), other])


@pytest.mark.parametrize("fact", sorted(set(CLASS_FACTS) - {"code_digest"}))
def test_so_are_nodes_of_different_machines_within_one_trial(fact):
    nodes = [MACHINE, {**MACHINE, "node": "node7", fact: "another"}]
    with pytest.raises(UserError, match=rf"{fact} is .* 'another' in .* on node7"):
        make_tables([measured(DDP, nodes=nodes)])


def test_mixed_machines_are_let_in_on_demand():
    other = measured(DDP, environment={**MACHINE, "cpu_model": "another"})
    assert len(make_tables([measured(SINGLE), other], mixed_nodes=True)["summary"]) == 2


def test_machines_of_one_class_may_have_different_names():
    other = measured(DDP, environment={**MACHINE, "host": "node2", "node": "node2", "memory_bytes": 1})
    assert len(make_tables([measured(SINGLE), other])["summary"]) == 2


def test_an_unavailable_record_may_be_of_another_machine():
    record = replace(an_unavailable_record(DDP), environment={**MACHINE, "cpu_model": "another"})
    assert len(make_tables([measured(SINGLE), (DDP, record, None)])["summary"]) == 2


# Warnings


def test_a_warning_of_some_repeats_says_of_how_many():
    oversubscribed = measured(replace(DDP, repeat=1), oversubscribed=True)
    cell = summary_of([measured(DDP), oversubscribed]).loc["ddp"]
    assert cell.warnings == "oversubscribed: 2 ranks x 1 threads on 2 usable CPUs (in 1 of 2 repeats)"


def test_the_same_kind_of_warning_is_given_once():
    busy = [measured(replace(DDP, repeat=repeat), machines_cpu_time_s=[7.0 + repeat]) for repeat in range(2)]
    assert summary_of(busy).loc["ddp"].warnings == "other processes used up to 25 % of the CPUs (in 2 of 2 repeats)"


def test_of_one_launch_it_is_given_as_it_is():
    busy = [measured(DDP, machines_cpu_time_s=[7.0]), measured(replace(DDP, repeat=1))]
    assert summary_of(busy).loc["ddp"].warnings == "other processes used 12 % of the CPUs (in 1 of 2 repeats)"


def test_other_processes_in_training_and_beside_the_controls_are_two_warnings():
    trial, record, steps = explained_record(replace(DDP, explain=True))
    uses = [replace(use, machine_cpu_time_s=19.1) for use in record.explained.uses]
    both = replace(record, machines_cpu_time_s=[7.0], explained=replace(record.explained, uses=uses))
    assert summary_of([(trial, both, steps)]).loc["ddp"].warnings.split("; ") == [
        "other processes used 12 % of the CPUs (in 1 of 1 repeats)",
        "other processes used 6 % of the CPUs while causes were measured (in 1 of 1 repeats)",
    ]


def test_of_a_cost_of_measuring_the_largest_is_told():
    launches = [measured(replace(DDP, repeat=repeat), machines_cpu_time_s=[0.0]) for repeat in range(2)]
    timings = make_tables(launches)["timings"]
    timings["warnings"] = ["measuring takes 9.1 % of a step", "measuring takes 10.3 % of a step"]
    said = summarize(timings, make_tables(launches)["comparisons"]).set_index("strategy").loc["ddp"].warnings
    assert said == "measuring takes up to 10.3 % of a step (in 2 of 2 repeats)"


def test_shared_nodes_are_warned_of():
    shared = measured(DDP, launch={**LAUNCH, "slurm": {"shared": True}})
    assert summary_of([shared]).loc["ddp"].warnings.startswith("shared nodes: ")


def test_a_quiet_cell_has_no_warning():
    assert summary_of([measured(DDP)]).loc["ddp"].warnings == ""


# A drift of the machine, and outliers


def launched(epochs_s, trial=DDP, first_minute: int = 0):
    """Launches of one cell, an hour apart."""
    return [
        measured(
            replace(trial, repeat=repeat),
            epoch_s,
            launch={**LAUNCH, "started_at": f"2026-01-01T0{repeat}:{first_minute:02}:00+00:00"},
        )
        for repeat, epoch_s in enumerate(epochs_s)
    ]


def test_a_machine_that_drifts_is_warned_of_in_every_row_that_it_may_have_touched():
    slower = [2.0 * 1.05**hours for hours in range(5)]
    cells = [launched(slower), launched([2 * value for value in slower], SINGLE, 30), [unavailable(a_trial(nodes=2))]]
    rows = make_tables([item for cell in cells for item in cell])["summary"]  # over 4.5 hours
    drifted, alike, not_here = rows.warnings
    assert drifted == alike
    assert drifted.startswith("the machine drifted: from first to last launch epochs became 24.6 % longer")
    assert not_here == ""


@pytest.mark.parametrize("epochs_s", [[2.4, 2.1, 2.2, 2.0, 2.3], [2.0], [2.0, 2.0, 2.0]])
def test_a_steady_machine_is_not(epochs_s):
    assert set(summary_of(launched(epochs_s), launched(epochs_s[::-1], SINGLE)).warnings) == {""}


def test_an_outlier_is_marked_counted_and_kept():
    tables = make_tables(repeats(DDP, [2.0, 2.1, 9.0, 2.2, 2.1]))
    assert tables["timings"].outlier.tolist() == [False, False, True, False, False]
    cell = tables["summary"].iloc[0]
    assert (cell.outliers, cell.repeats, cell.epoch_time_s_high) == (1, 5, 9.0)


# Written and read again


def written(tmp_path, rows):
    samples = {record.trial.id: samples_of(record) for _, record, _ in rows if record is not None and record.ranks}
    tables = make_tables(rows, samples=samples, published=PUBLISHED)
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    return tables


@pytest.mark.parametrize("table", OF_TRIALS)
def test_a_table_comes_back_from_its_file(tmp_path, table):
    rows = [
        *repeats(SINGLE, [2.0, 3.0]),
        measured(DDP),
        missing(replace(DDP, repeat=1)),
        unavailable(a_trial(strategy="dp", base="data_parallel")),
    ]
    before = written(tmp_path, rows)[table]
    again = read_table(tmp_path, table)
    assert again.columns.tolist() == before.columns.tolist()
    assert again.astype(object).fillna("").equals(before.astype(object).fillna(""))


@pytest.mark.parametrize("name", ["nan", "null", "none", "true", "inf", "na"])
def test_a_strategy_may_be_called_what_pandas_takes_for_something_else(tmp_path, name):
    written(tmp_path, [measured(DDP), explained_record(replace(DDP, strategy=name, explain=True))])
    assert [table for table in OF_TRIALS if name not in read_table(tmp_path, table).strategy.tolist()] == []


def test_every_column_of_text_is_read_as_text():
    other = replace(DDP, strategy="other", base="ddp")
    found = [explained_record(replace(trial, explain=True)) for trial in (DDP, other)]
    samples = {trial.id: samples_of(record) for trial, record, _ in found}
    digests = {trial.id: "ab" * 32 for trial, _, _ in found}
    tables = make_tables(found, samples=samples, digests=digests, published=PUBLISHED)
    texts = {name for table in tables.values() for name in table.columns if isinstance(table[name].iloc[0], str)}
    made_apart = {"backend", "operation", "dtype", "fact", "before", "after", "predicted_at", "limited_by", "code"}
    made_apart |= {"set_before", "set_after", "ledger_last_line"}
    made_apart |= {"about", "question", "support", "why", "next_step", "missing", "cell", "follows_from"}
    # n/a without a base, without a GPU, and without a cell of ours that is a published one
    absent = {"speedup_spread", "throttle_reasons", "measured_cell", "measured_differs_in"}
    assert texts == TEXTS - made_apart - absent
