"""What samples of the monitor say: of the timed steps, on the node's own clock, and nothing where there is nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import factories
import numpy as np
import pandas as pd
import pytest
from factories import a_record, a_segment, a_trial, rank_facts, samples_of, steps_of

from dpscale import metrics
from dpscale.monitoring import usage
from dpscale.record import SAMPLE_COLUMNS, Record
from dpscale.tables import make_tables
from dpscale.tables.schema import TABLES

CUDA = a_trial(device="cuda", backend="nccl")
TIMES_S = np.array([0.0, 1.0, 2.0, 3.0])


def test_a_counter_counts_inside_the_windows_only():
    counter = np.array([0.0, 10.0, 30.0, 60.0])
    assert usage.counted(TIMES_S, counter, [(0.5, 1.5), (2.0, 3.0)]) == pytest.approx(5 + 10 + 30)


@pytest.mark.parametrize("window", [(-0.1, 1.0), (1.0, 3.1)])
def test_a_window_that_samples_do_not_enclose_has_no_count(window: tuple[float, float]):
    assert usage.counted(TIMES_S, TIMES_S, [window]) is None


def test_a_counter_that_is_not_told_counts_nothing():
    assert usage.counted(TIMES_S, np.full(4, np.nan), [(1.0, 2.0)]) is None
    assert usage.counted(TIMES_S[:1], TIMES_S[:1], [(0.0, 0.0)]) is None


def test_a_counter_that_began_again_runs_on():
    assert usage.unwrapped(np.array([90.0, 98.0, 6.0, 14.0]), 100.0).tolist() == [90, 98, 106, 114]


def test_samples_that_follow_each_other_at_once_make_no_rate():
    assert usage.apart(np.array([0.0, 0.5, 0.6, 1.1, 1.2]), 0.25).tolist() == [True, True, False, True, False]


def test_idle_is_the_lowest_before_the_first_step():
    assert usage.lowest_before(TIMES_S, np.array([np.nan, 60.0, 55.0, 10.0]), 2.5) == 55
    assert usage.lowest_before(TIMES_S, np.full(4, np.nan), 2.5) is None


def test_throttling_has_the_share_of_samples_of_each_reason():
    assert usage.throttling(["", "power cap", "power cap+hardware thermal", "power cap"]) == (
        "power cap 75 %, hardware thermal 25 %"
    )
    assert usage.throttling(["", ""]) == ""


# The table


def monitor_of(record: Record, samples: pd.DataFrame | None = None) -> pd.DataFrame:
    given = {} if samples is None else {record.trial.id: samples}
    return make_tables([(record.trial, record, steps_of(record))], samples=given)["monitor"]


def gpu_samples(uuid: str = "GPU-2", **values: Any) -> pd.DataFrame:
    """Every half second from 95 s; steps are timed from 100 to 102 s."""
    time_s = np.arange(95.0, 110.0, 0.5)
    told = {
        "node": 0,
        "kind": "gpu",
        "name": uuid,
        "utilization_percent": np.where((time_s >= 100) & (time_s <= 102), 90, 5),
        "memory_bytes": 2**30,
        "power_w": np.where(time_s < 100, 70.0, 300.0),
        "energy_j": 300 * time_s,
        "sm_clock_MHz": 1980,
        "memory_clock_MHz": 3201,
        "temperature_C": 61,
        "throttle_reasons": "power cap",
        "processes": 1,
        **values,
    }
    return pd.DataFrame({"time_s": time_s} | told).reindex(columns=list(SAMPLE_COLUMNS))


def on_one_gpu(**changes: Any) -> Record:
    trial = factories.a_single_trial(device="cuda", backend="nccl")
    return a_record(trial, **{"ranks": [rank_facts(0, device_uuids=["GPU-2"])]} | changes)


def test_a_gpus_row_is_of_the_timed_steps_and_its_own_samples():
    others = gpu_samples("GPU-0", utilization_percent=1)
    table = monitor_of(on_one_gpu(), pd.concat([others, gpu_samples()]))
    row = table.set_index("kind").loc["gpu"]
    assert (row["name"], row.utilization_percent, row.samples) == ("GPU-2", 90, 5)
    assert (row.power_w, row.idle_power_w, row.temperature_C) == (300, 70, 61)
    assert row.energy_per_epoch_J == pytest.approx(300 * 2.0)  # two timed epochs of 2 s, in the mean
    assert row.throttle_reasons == "power cap 100 %"
    assert row.other_processes == 0


def test_a_gpu_without_samples_has_the_reason_of_its_own_uuid():
    absent = [{"GPU-2": "NVML: Not Found", "package": "no RAPL"}]
    assert monitor_of(on_one_gpu(monitor_absent=absent)).set_index("kind").loc["gpu"].reason == "NVML: Not Found"
    silent = on_one_gpu(monitor_absent=[{"gpu": "NVML: Driver Not Loaded"}])
    assert monitor_of(silent).set_index("kind").loc["gpu"].reason == "NVML: Driver Not Loaded"


def test_somebody_else_on_the_gpu_is_told():
    assert monitor_of(on_one_gpu(), gpu_samples(processes=3)).set_index("kind").loc["gpu"].other_processes == 2


def warned(record: Record, samples: pd.DataFrame) -> str:
    tables = make_tables([(record.trial, record, steps_of(record))], samples={record.trial.id: samples})
    (summary,) = tables["summary"].warnings
    assert all(text in summary for text in tables["timings"].warnings[0].split("; "))
    return str(tables["timings"].warnings[0])


def test_a_gpu_that_was_left_alone_at_full_clocks_is_not_warned_of():
    assert warned(on_one_gpu(), gpu_samples(throttle_reasons="")) == ""


def test_what_a_gpu_does_before_and_after_timed_steps_is_not_warned_of():
    samples = gpu_samples(throttle_reasons="")
    timed = (samples.time_s >= 100) & (samples.time_s <= 102)
    assert warned(on_one_gpu(), samples.assign(processes=np.where(timed, 1, 5))) == ""


def test_another_process_on_a_gpu_is_warned_of():
    processes = np.where(np.arange(95.0, 110.0, 0.5) == 101, 2, 1)
    assert warned(on_one_gpu(), gpu_samples(throttle_reasons="", processes=processes)) == (
        "another process had a context on a GPU in 20 % of samples (1 of 1 GPUs, most GPU-2 on laptop)"
    )


def test_clocks_that_are_held_back_are_warned_of_where_it_is_most():
    trial = a_trial(device="cuda", backend="nccl")
    record = a_record(trial, ranks=[rank_facts(rank, device_uuids=[f"GPU-{rank}"]) for rank in range(2)])
    hot = np.where(np.arange(95.0, 110.0, 0.5) <= 101, "power cap+hardware thermal", "power cap")
    samples = pd.concat([gpu_samples("GPU-0", throttle_reasons=""), gpu_samples("GPU-1", throttle_reasons=hot)])
    assert warned(record, samples).split("; ") == [
        "clocks were held back by power cap in 100 % of samples (1 of 2 GPUs, most GPU-1 on laptop)",
        "clocks were held back by hardware thermal in 60 % of samples (1 of 2 GPUs, most GPU-1 on laptop)",
    ]


def test_launches_that_a_gpu_was_disturbed_in_are_counted_together_wherever_it_was():
    launches, samples = [], {}
    for repeat, percent in enumerate((20, 60)):
        record = on_one_gpu(ranks=[rank_facts(0, device_uuids=[f"GPU-{repeat}"])])
        record = replace(record, trial=replace(record.trial, repeat=repeat))
        times_s = np.arange(95.0, 110.0, 0.5)
        processes = np.where((times_s >= 100) & (times_s < 100 + percent / 40), 2, 1)
        samples[record.trial.id] = gpu_samples(f"GPU-{repeat}", throttle_reasons="", processes=processes)
        launches.append((record.trial, record, steps_of(record)))
    assert make_tables(launches, samples=samples)["summary"].warnings.tolist() == [
        "another process had a context on a GPU in up to 60 % of samples (1 of 1 GPUs, most GPU-1 on laptop) "
        "(in 2 of 2 repeats)"
    ]


def test_energy_of_an_epoch_is_scaled_from_timed_steps():
    trial = factories.a_single_trial(device="cuda", epochs=None, warmup_epochs=None, steps=4, warmup_steps=2)
    record = on_one_gpu(segments=[a_segment(seconds=[2.0], num_steps=2)], steps_per_epoch=10)
    row = monitor_of(replace(record, trial=trial), gpu_samples()).set_index("kind").loc["gpu"]
    assert row.energy_per_epoch_J == pytest.approx(300 * 2.0 * 10 / 2)


def test_a_gpu_that_does_not_tell_its_energy_has_none():
    row = monitor_of(on_one_gpu(), gpu_samples(energy_j=np.nan, power_w=np.nan)).set_index("kind").loc["gpu"]
    assert row[["energy_per_epoch_J", "power_w", "idle_power_w"]].isna().all()
    assert row.utilization_percent == 90


def test_energy_of_a_cpu_package_is_its_counters_even_where_that_begins_again():
    time_s = np.arange(95.0, 110.0, 0.5)
    counter = (40 * time_s) % 250
    package = pd.DataFrame({"time_s": time_s, "energy_j": counter, "energy_range_j": 250.0})
    package = package.assign(node=0, kind="package", name="intel-rapl:0").reindex(columns=list(SAMPLE_COLUMNS))
    row = monitor_of(a_record(), package).set_index("kind").loc["package"]
    assert row.energy_per_epoch_J == pytest.approx(40 * 2.0)
    assert (row.power_w, row.idle_power_w) == (pytest.approx(40), pytest.approx(40))


def test_ranks_have_a_row_without_a_monitor_too_and_it_says_so():
    record = a_record(
        a_trial(monitor_interval_s=None), ranks=[rank_facts(rank, affinity=[0, 1, 2, 5]) for rank in (0, 1)]
    )
    ranks = monitor_of(record).query("kind == 'rank'")
    assert ranks.cpu_percent.tolist() == [75, 75]  # 3 of 4 s
    assert ranks.affinity.tolist() == ["0-2,5"] * 2
    assert ranks.shares_cpus_with.tolist() == ["1", "0"]
    assert ranks.proportional_memory_MiB.tolist() == [200, 200]
    assert ranks.memory_MiB.isna().all()
    assert set(ranks.reason) == {"no monitor: monitor_interval_s is null"}


def test_what_could_not_be_read_has_the_reason_of_the_machine():
    assert monitor_of(a_record()).query("kind == 'package'").reason.tolist() == ["no RAPL"]


def test_steps_too_short_for_a_sample_say_what_to_do():
    record = a_record(segments=[a_segment(seconds=[0.1, 0.1])])
    samples = samples_of(record).assign(time_s=lambda table: table.time_s + 0.3)
    ranks = monitor_of(record, samples).query("kind == 'rank'")
    assert ranks.reason.str.startswith("no sample fell into the timed steps").all()
    assert ranks.memory_MiB.isna().all()


# Over time


def timeline_of(record: Record, samples: pd.DataFrame) -> pd.DataFrame:
    return make_tables([(record.trial, record, steps_of(record))], samples={record.trial.id: samples})["timeline"]


def test_a_line_over_time_begins_before_the_first_step():
    record = a_record()
    line = timeline_of(record, samples_of(record)).query("name == '1'")
    assert line.time_s.iloc[0] == -5
    assert line.utilization_percent.iloc[1:].tolist() == pytest.approx([75.0] * (len(line) - 1))


def test_a_long_line_has_fewer_points_and_the_same_mean():
    record = on_one_gpu()
    samples = pd.concat([gpu_samples().assign(time_s=lambda table, k=k: table.time_s + 15 * k) for k in range(50)])
    line = timeline_of(record, samples)
    assert 100 < len(line) <= 300
    assert line.utilization_percent.mean() == pytest.approx(samples.utilization_percent.mean(), rel=0.05)


# Start-up, and what measuring costs


def test_start_up_has_a_row_per_rank_with_its_first_step_apart():
    record = a_record()
    table = make_tables([(record.trial, record, steps_of(record))])["startup"]
    assert table["rank"].tolist() == [0, 1]
    assert table.import_s.tolist() == [2.0, 2.0]
    assert table.compile_s.isna().all()  # not asked for, and not 0
    assert table.first_step_s.tolist() == [4.5, 4.5]  # of the warm-up epoch: two steps in 9 s


@pytest.mark.parametrize(("cost_s", "flagged"), [(0.019, False), (0.021, True)])
def test_a_cell_of_which_measuring_takes_more_than_two_percent_is_flagged(cost_s: float, flagged: bool):
    record = a_record(ranks=[rank_facts(0), rank_facts(1, measuring_s_per_step=cost_s)])  # of a step of 1 s
    timing = make_tables([(record.trial, record, steps_of(record))])["timings"].iloc[0]
    assert timing.measuring_overhead_percent == pytest.approx(100 * cost_s)
    assert ("measuring takes" in timing.warnings) is flagged


# Who shares the machine


def on_two_nodes(**changes: Any) -> Record:
    trial = a_trial(nodes=2, devices_per_node=2)
    nodes = [{**factories.MACHINE, "node": f"node{number}"} for number in range(2)]
    return a_record(trial, nodes=nodes, **changes)


def test_others_are_counted_on_every_node_and_the_worst_is_told():
    record = on_two_nodes(machines_cpu_time_s=[6.0, 7.0])
    assert metrics.others_cpu_percents(record) == [0, pytest.approx(100 * 1 / 8)]
    assert metrics.others_cpu_percent(record) == pytest.approx(12.5)
    assert "other processes used 12 % of the CPUs" in metrics.warnings(record)


def pinned(*masks: list[int]) -> Record:
    return a_record(ranks=[rank_facts(rank, affinity=mask) for rank, mask in enumerate(masks)])


def test_ranks_that_are_pinned_onto_each_other_are_flagged():
    assert metrics.warnings(pinned([0, 1], [1, 2])) == ["pinning: rank 0 shares CPUs with rank 1"]


@pytest.mark.parametrize("masks", [([0, 1], [0, 1]), ([0], [1])], ids=["not pinned", "well pinned"])
def test_others_are_not(masks: tuple[list[int], list[int]]):
    assert metrics.warnings(pinned(*masks)) == []


def test_what_helpers_use_beside_the_computing_threads_is_not_cut_off_and_is_explained_wherever_it_is_shown():
    ranks = [rank_facts(rank, cpu_time_s=4.04) for rank in (0, 1)]  # gloo's threads have used the last hundredth
    assert metrics.utilization_percent(a_record(ranks=ranks)) == pytest.approx(101)
    root = Path(__file__).parents[1]
    captions = [
        root / f"workflow/report/{name}.rst" for name in ("comparison", "utilization", "utilization_per_device")
    ]
    told = [path.read_text() for path in (root / "README.md", *captions)]
    told += [TABLES[name]["utilization_percent"] for name in ("timings", "summary", "monitor")]
    assert [text for text in told if "above 100" not in text] == []
