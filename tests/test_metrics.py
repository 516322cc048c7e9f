"""Rates and shares, computed by hand on records that were made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from factories import (
    MACHINE,
    a_record,
    a_segment,
    a_single_trial,
    a_trial,
    an_evaluation,
    an_explained,
    rank_facts,
    steps_of,
)

from dpscale import metrics
from dpscale.phases import PHASE_COLUMNS

GIB = 1024**3


def record_of(*segments, **changes):
    return a_record(segments=list(segments), **changes)


def steps_with(record, **columns):
    """The record's steps with the given columns instead."""
    steps = steps_of(record)
    for name, values in columns.items():
        steps[name] = np.array(values, dtype=steps[name].dtype)
    return steps


def test_an_epoch_takes_as_long_as_its_slowest_rank():
    assert metrics.epoch_time_s(record_of(a_segment(seconds=[2.0, 5.0]))) == 5.0


def test_an_epochs_time_is_the_mean_of_the_timed_epochs_without_warm_up():
    record = record_of(a_segment(seconds=[90, 90], warmup=True), a_segment(seconds=[2, 3]), a_segment(seconds=[5, 4]))
    assert metrics.epoch_time_s(record) == 4.0
    assert metrics.epoch_time_source(record) == "measured"


def test_throughput_is_all_samples_over_all_time_and_no_mean_of_rates():
    record = record_of(
        a_segment(seconds=[90, 90], samples=[9000, 9000], warmup=True),
        a_segment(seconds=[1, 1], samples=[50, 50]),  # 100 per second
        a_segment(seconds=[3, 2], samples=[10, 10]),  # 6.7 per second
    )
    assert metrics.throughput_samples_per_s(record) == 120 / 4


def test_samples_are_those_delivered_and_not_steps_times_batch():
    record = record_of(a_segment(seconds=[1, 1], samples=[50, 30], num_steps=4))
    assert metrics.throughput_samples_per_s(record) == 80


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_rates_of_n_equal_ranks_add_up_to_the_throughput(n):
    trial = a_trial(devices_per_node=n)
    record = a_record(trial, segments=[a_segment(seconds=[2.0] * n, samples=[64] * n)])
    assert metrics.throughput_samples_per_s(record) == n * 64 / 2.0


def test_one_process_that_feeds_several_devices_shares_its_rate_among_them():
    trial = a_trial(strategy="data_parallel", devices_per_node=4)
    record = a_record(trial, segments=[a_segment(seconds=[2.0], samples=[64])])
    assert metrics.throughput_per_device_samples_per_s(record) == 64 / 2.0 / 4


def test_the_rate_of_a_device_is_the_mean_over_ranks():
    record = record_of(a_segment(seconds=[2, 1], samples=[60, 40]))
    assert metrics.throughput_per_device_samples_per_s(record) == (60 + 40) / 2 / 2.0


def test_samples_of_an_epoch_are_the_mean_of_the_timed_epochs():
    record = record_of(a_segment(samples=[900, 900], warmup=True), a_segment(samples=[50, 50]), a_segment())
    assert metrics.train_samples_per_epoch(record) == (100 + 128) / 2


def test_samples_of_an_epoch_from_steps_are_those_of_a_step_times_the_steps_of_an_epoch():
    trial = a_trial(epochs=None, warmup_epochs=None, steps=60, warmup_steps=10)
    record = a_record(trial, segments=[a_segment(samples=[320, 320], num_steps=10)], steps_per_epoch=200)
    assert metrics.train_samples_per_epoch(record) == 200 * 64


def test_delivered_samples_are_counted_step_by_step_without_warm_up():
    record = record_of(a_segment(warmup=True), a_segment(samples=[50, 30], num_steps=4))
    assert metrics.train_samples(steps_of(record)) == 80


def test_an_epochs_time_from_steps_is_steps_per_epoch_times_the_mean_step():
    trial = a_trial(epochs=None, warmup_epochs=None, steps=60, warmup_steps=10)
    record = a_record(
        trial,
        segments=[
            a_segment(seconds=[70, 70], num_steps=10, warmup=True),
            a_segment(seconds=[5.0, 4.0], num_steps=50),
        ],
        steps_per_epoch=200,
    )
    assert metrics.epoch_time_s(record) == pytest.approx(200 * 5.0 / 50)
    assert metrics.epoch_time_source(record) == "from 50 steps"


def test_a_step_takes_as_long_as_its_slowest_rank():
    record = record_of(a_segment(seconds=[1, 1], num_steps=3))
    steps = steps_with(
        record,
        data_wait_s=[0] * 6,
        backward_s=[0] * 6,
        optimizer_s=[0] * 6,
        forward_s=[1.0, 2.0, 9.0, 4.0, 3.0, 5.0],  # rank 0's three steps, then rank 1's: slowest 4, 3, 9
    )
    assert metrics.step_time_s(steps) == 4.0


def test_a_steps_time_is_the_sum_of_its_phases_and_leaves_warm_up_out():
    record = record_of(a_segment(seconds=[80, 80], warmup=True), a_segment(seconds=[4, 4], num_steps=2))
    assert metrics.step_time_s(steps_of(record)) == 2.0
    assert metrics.phase_times_s(steps_of(record)) == dict.fromkeys(PHASE_COLUMNS, 0.5)


def test_phases_add_up_to_the_mean_step():
    record = record_of(a_segment(seconds=[4, 4], num_steps=2))
    steps = steps_with(record, data_wait_s=[1, 2, 3, 4], forward_s=[1, 1, 1, 1])
    assert sum(metrics.phase_times_s(steps).values()) == pytest.approx(2.5 + 1 + 0.5 + 0.5)


def test_the_rows_of_steps_may_come_in_any_order():
    record = a_record()
    steps = steps_of(record)
    backwards = {name: values[::-1] for name, values in steps.items()}
    assert metrics.loss_by_step(backwards) == metrics.loss_by_step(steps)
    assert metrics.step_time_s(backwards) == metrics.step_time_s(steps)


def test_the_loss_of_a_step_is_the_mean_over_the_global_batch():
    record = record_of(a_segment(seconds=[1, 1], num_steps=1))
    steps = steps_with(record, samples=[30, 10], loss=[1.0, 3.0])
    assert metrics.loss_by_step(steps) == [{"segment": 0, "step": 0, "samples_seen": 40, "loss": 1.5}]


def test_samples_seen_run_through_warm_up_and_all_segments():
    seen = [row["samples_seen"] for row in metrics.loss_by_step(steps_of(a_record()))]
    assert seen == [64, 128, 192, 256, 320, 384]


def test_an_evaluation_takes_as_long_as_its_slowest_rank_and_the_rate_is_samples_over_time():
    evaluations = [an_evaluation(seconds=[1, 3]), an_evaluation(seconds=[2, 1])]
    record = record_of(*[a_segment(evaluation=evaluation) for evaluation in evaluations])
    assert metrics.evaluation_time_s(record) == 2.5
    assert metrics.evaluation_throughput_samples_per_s(record) == 200 / 5
    assert metrics.test_samples(record) == 100


def test_the_evaluation_of_a_warm_up_epoch_is_left_out():
    record = record_of(
        a_segment(warmup=True, evaluation=an_evaluation(seconds=[50, 50])), a_segment(evaluation=an_evaluation())
    )
    assert metrics.evaluation_time_s(record) == 1.0


def test_without_an_evaluation_its_metrics_are_absent():
    record = record_of(a_segment())
    assert metrics.evaluation_time_s(record) is None
    assert metrics.evaluation_throughput_samples_per_s(record) is None
    assert metrics.final_accuracy(record) is None
    assert metrics.final_top5_accuracy(record) is None


def test_the_final_accuracy_is_that_after_the_last_segment():
    record = record_of(*[a_segment(evaluation=an_evaluation(correct=correct)) for correct in (50, 90)])
    assert metrics.final_accuracy(record) == 0.9


def test_the_accuracy_of_the_five_likeliest_is_that_after_the_last_segment_too():
    record = record_of(*[a_segment(evaluation=an_evaluation(correct_top5=correct)) for correct in (80, 97)])
    assert metrics.final_top5_accuracy(record) == 0.97


def test_ranks_with_weights_of_their_own_have_no_accuracy():
    nothing = an_evaluation(correct=None, correct_top5=None, loss=None)
    assert metrics.final_accuracy(record_of(a_segment(evaluation=nothing))) is None
    assert metrics.final_top5_accuracy(record_of(a_segment(evaluation=nothing))) is None


def test_cpu_utilization_is_cpu_time_over_ranks_times_threads_times_time():
    ranks = [rank_facts(rank, cpu_time_s=6.0, threads=2) for rank in range(2)]
    assert metrics.utilization_percent(record_of(a_segment(seconds=[4, 4]), ranks=ranks)) == 100 * 12 / (2 * 2 * 4)
    assert metrics.cpu_percent_per_rank(record_of(a_segment(seconds=[4, 4]), ranks=ranks)) == 150


def test_warm_up_does_not_count_as_time_that_could_have_been_used():
    ranks = [rank_facts(rank, cpu_time_s=4.0) for rank in range(2)]
    record = record_of(a_segment(seconds=[90, 90], warmup=True), a_segment(seconds=[4, 4]), ranks=ranks)
    assert metrics.utilization_percent(record) == 100


def gpu_record(*percent):
    ranks = [rank_facts(rank, gpu_utilization_percent=value) for rank, value in enumerate(percent)]
    return a_record(a_trial(device="cuda"), ranks=ranks)


def test_gpu_utilization_is_the_mean_over_devices():
    assert metrics.utilization_percent(gpu_record(80.0, 60.0)) == 70.0


def test_gpu_utilization_is_absent_where_a_device_was_not_sampled():
    assert metrics.utilization_percent(gpu_record(80.0, None)) is None
    assert metrics.utilization_percent(gpu_record(None, None)) is None


def test_peak_memory_is_the_largest_ranks():
    ranks = [
        rank_facts(0, peak_memory_bytes=3 * GIB, peak_reserved_bytes=GIB),
        rank_facts(1, peak_memory_bytes=GIB, peak_reserved_bytes=2 * GIB),
    ]
    record = a_record(ranks=ranks)
    assert metrics.peak_memory_MiB(record, "memory") == 3 * 1024
    assert metrics.peak_memory_MiB(record, "reserved") == 2 * 1024


def test_memory_that_was_not_measured_is_absent_and_not_zero():
    assert metrics.peak_memory_MiB(a_record(), "allocated") is None


def test_others_are_what_the_machine_used_beyond_the_ranks():
    ranks = [rank_facts(rank, cpu_time_s=3.0) for rank in range(2)]
    record = record_of(a_segment(seconds=[4, 4]), ranks=ranks, machines_cpu_time_s=[8.0])
    assert metrics.others_cpu_percent(record) == 100 * 2 / (2 * 4)


def test_clock_ticks_make_no_negative_others():
    assert metrics.others_cpu_percent(record_of(a_segment(seconds=[4, 4]), machines_cpu_time_s=[5.9])) == 0.0


def test_nor_do_they_make_more_of_others_than_there_is():
    assert metrics.others_cpu_percent(record_of(a_segment(seconds=[4, 4]), machines_cpu_time_s=[14.1])) == 100.0


def test_others_are_unknown_where_they_were_not_counted():
    assert metrics.others_cpu_percent(a_record(machines_cpu_time_s=[])) is None


def test_linear_scaling_is_an_efficiency_of_one():
    assert metrics.scaling_efficiency(4.0, 4) == 1.0
    assert metrics.scaling_efficiency(3.0, 4) == 0.75


def test_a_quiet_trial_has_no_warnings():
    assert metrics.warnings(a_record()) == []


def test_an_oversubscribed_trial_says_by_how_much():
    record = a_record(a_trial(devices_per_node=4, threads_per_rank=2), oversubscribed=True)
    assert metrics.warnings(record) == ["oversubscribed: 4 ranks x 2 threads on 2 usable CPUs"]


@pytest.mark.parametrize(("machine_s", "warned"), [(6.0, False), (6.39, False), (6.41, True)])
def test_others_are_warned_of_above_five_percent(machine_s, warned):
    record = record_of(a_segment(seconds=[4, 4]), machines_cpu_time_s=[machine_s])
    assert bool(metrics.warnings(record)) is warned


@pytest.mark.parametrize(("machine_s", "warned"), [(18.0, False), (18.9, False), (19.1, True)])
def test_others_are_warned_of_while_causes_are_measured_too(machine_s, warned):
    explained = an_explained()  # both ranks use 9 s of the 10 s that all blocks take
    uses = [replace(use, machine_cpu_time_s=machine_s) for use in explained.uses]
    record = a_record(a_trial(explain=True), explained=replace(explained, uses=uses))
    assert metrics.others_cpu_percent_in_blocks(record) == pytest.approx(100 * (machine_s - 18) / 20)
    assert metrics.warnings(record) == (
        ["other processes used 6 % of the CPUs while causes were measured"] if warned else []
    )


def test_a_metric_is_computed_from_the_timed_segments_of_one_process_as_well():
    record = a_record(a_single_trial())
    assert metrics.throughput_samples_per_s(record) == 32.0
    assert metrics.epoch_time_s(record) == 2.0


def test_metrics_leave_the_record_as_it_was():
    record = a_record()
    before = replace(record, environment=dict(MACHINE))
    metrics.warnings(record), metrics.utilization_percent(record), metrics.loss_by_step(steps_of(record))
    assert record == before


def test_the_time_of_a_checkpoint_is_the_mean_and_absent_without_one():
    assert metrics.checkpoint_time_s(a_record(checkpoint_times_s=[1.0, 2.0])) == 1.5
    assert metrics.checkpoint_time_s(a_record()) is None
