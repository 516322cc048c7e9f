"""On every row rates, times and samples fit together, whatever was measured; a row that contradicts itself is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from factories import (
    a_record,
    a_segment,
    a_single_trial,
    a_trial,
    an_evaluation,
    measured,
    rank_facts,
    repeats,
    steps_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dpscale.errors import UserError
from dpscale.tables import make_tables
from dpscale.tables.invariants import RULES, refuse_contradictions

SINGLE, DDP = a_single_trial(), a_trial()
SECONDS = st.floats(1e-3, 1e4)


@st.composite
def launches(draw):
    """Launches of one cell on any number of devices: ranks, epochs (or steps) and evaluations of any duration."""
    n = draw(st.integers(1, 4))
    single_process = draw(st.booleans())
    by_steps = draw(st.booleans())
    trial = a_trial(
        devices_per_node=n,
        **({"strategy": "data_parallel"} if single_process else {}),
        **({"epochs": None, "warmup_epochs": None, "steps": 9, "warmup_steps": 2} if by_steps else {}),
    )
    ranks, num_steps = trial.world_size, draw(st.integers(1, 7))
    samples = draw(st.lists(st.integers(num_steps, 500), min_size=ranks, max_size=ranks))
    found = []
    for repeat in range(draw(st.integers(1, 4))):

        def seconds() -> list[float]:
            return draw(st.lists(SECONDS, min_size=ranks, max_size=ranks))

        segments = [
            a_segment(
                seconds=seconds(), samples=samples, num_steps=num_steps, evaluation=an_evaluation(seconds=seconds())
            )
            for _ in range(1 if by_steps else draw(st.integers(1, 3)))
        ]
        record = a_record(
            replace(trial, repeat=repeat),
            segments=segments,
            ranks=[rank_facts(rank, cpu_time_s=draw(st.floats(0, 1e5))) for rank in range(ranks)],
            machines_cpu_time_s=[draw(st.floats(0, 1e6))],
            steps_per_epoch=draw(st.just(13)),
        )
        found.append((record.trial, record, steps_of(record)))
    return found


@settings(max_examples=40)
@given(launches())
def test_rows_of_timings_and_summary_fit_together_whatever_was_measured(found):
    tables = make_tables(found)  # refuses what does not
    for name in ("timings", "summary"):
        for row in tables[name].itertuples():
            rate = row.throughput_samples_per_s
            assert row.throughput_per_device_samples_per_s * row.devices == pytest.approx(rate)
            assert rate * row.epoch_time_s == pytest.approx(row.train_samples_per_epoch)
            assert row.evaluation_throughput_samples_per_s * row.evaluation_time_s == pytest.approx(100)
            assert 0 <= row.final_accuracy <= 1
    for row, (_, record, _) in zip(tables["timings"].itertuples(), found, strict=True):
        delivered = sum(sum(segment.samples) for segment in record.timed_segments)
        assert row.throughput_samples_per_s * row.training_time_s == pytest.approx(delivered)
        assert row.train_samples == delivered
        assert 0 <= row.others_cpu_percent <= 100


def test_on_a_summary_row_rate_times_time_is_samples_for_an_even_number_of_launches_too():
    """The median of rates is no rate of the median time: (64 + 32) / 2 samples per s x 3 s is not 128."""
    cell = make_tables(repeats(DDP, [2.0, 4.0]))["summary"].iloc[0]
    assert cell.throughput_samples_per_s * cell.epoch_time_s == 128
    assert cell.throughput_samples_per_s_low * cell.epoch_time_s_high == 128


# What does not fit is refused by name


def test_steps_that_are_not_those_of_the_record_are_refused():
    trial, record, steps = measured(DDP)
    fewer = {**steps, "samples": steps["samples"] - 1}
    with pytest.raises(
        UserError, match=r"^quickstart/ddp/spawn/1x2/r0: .* rate x time = delivered samples .*train_samples = 248"
    ):
        make_tables([(trial, record, fewer)])


def test_an_accuracy_above_one_is_refused():
    evaluation = an_evaluation(correct=101)
    with pytest.raises(UserError, match=r"no share above all: final_accuracy does not hold \(final_accuracy = 1.01\)"):
        make_tables([measured(DDP, segments=[a_segment(evaluation=evaluation)])])


def test_repeats_of_a_cell_that_delivered_different_numbers_of_samples_are_refused():
    other = measured(replace(DDP, repeat=1), segments=[a_segment(samples=[30, 30])])
    with pytest.raises(UserError, match="repeats of a cell have the same train_samples_per_epoch does not hold"):
        make_tables([measured(DDP), other])


COLUMNS = [
    (table, rule, column) for table, rules in RULES.items() for rule, found in rules.items() for column in found.columns
]


@pytest.fixture(scope="module")
def whole():
    """Tables of two cells on GPUs, of which nothing is empty."""
    of_gpu = {"peak_allocated_bytes": 1000, "peak_reserved_bytes": 2000, "gpu_utilization_percent": 50.0}
    trials = [replace(trial, repeat=repeat, device="cuda") for trial in (DDP, SINGLE) for repeat in range(2)]
    ranks = {n: [rank_facts(rank, **of_gpu) for rank in range(n)] for n in (1, 2)}
    return make_tables([measured(trial, compile_time_s=1.0, ranks=ranks[trial.world_size]) for trial in trials])


@pytest.mark.parametrize(("table", "rule", "column"), COLUMNS, ids=str)
def test_a_wrong_number_in_any_column_of_a_rule_breaks_it(table, rule, column, whole):
    """The last row's is made wrong."""
    rows = whole[table].copy()
    rows[column] = rows[column].astype(float)
    wrong = -10.0 * rows[column].max() if column.endswith("_high") else 10.0 * rows[column].max() + 1000
    rows.loc[len(rows) - 1, column] = wrong
    assert RULES[table][rule].holds(rows).tolist() == [True] * (len(rows) - 1) + [False]
    with pytest.raises(UserError, match="single/spawn/1x1"):
        refuse_contradictions(table, rows)


@pytest.mark.parametrize("table", RULES)
def test_what_is_empty_breaks_no_rule(table):
    unmeasured = [(DDP, None, None), measured(replace(SINGLE, evaluate=False))]
    rows = make_tables(unmeasured)[table]
    assert all(rule.holds(rows).all() for rule in RULES[table].values())


def test_an_efficiency_above_one_and_a_cpu_above_its_threads_are_no_contradiction():
    busy = [rank_facts(rank, cpu_time_s=9.0) for rank in range(2)]  # of 4 s: helper threads
    summary = make_tables([*repeats(SINGLE, [3.0]), measured(DDP, 1.0, ranks=busy)])["summary"].set_index("strategy")
    assert summary.loc["ddp"].scaling_efficiency == pytest.approx(3.0)
    assert summary.loc["ddp"].utilization_percent > 100


def test_the_made_up_steps_deliver_what_their_record_says():
    record = a_record(segments=[a_segment(samples=[50, 30], num_steps=4)])
    assert np.sum(steps_of(record)["samples"]) == 80
