"""The monitor: beside the ranks of every node, of their own devices, and without a part in what is measured."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import factories
import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from launching import (
    ADADELTA,
    ENDLESS,
    SCRIPTS,
    TESTS,
    Launch,
    Trained,
    measured,
    running,
    small_trial,
    starts_here,
    trained,
)

import train
from dpscale.environment import device_uuids
from dpscale.monitoring.monitor import affinity
from dpscale.monitoring.nvml import Gpus, throttle_text
from dpscale.monitoring.sampling import read_back, readable_packages
from dpscale.phases import PHASE_COLUMNS
from dpscale.record import RECORD, SAMPLE_COLUMNS, read_samples

NVML = TESTS / "nvml"
OFTEN = 0.05


def samples_of(done: Trained) -> pd.DataFrame:
    return read_samples(done.folder / RECORD).to_pandas()


# On the CPU


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Two ranks, seconds of timed epochs."""
    trial = small_trial(
        batch_size_per_device=16,
        epochs=16,
        warmup_epochs=3,
        steps=None,
        warmup_steps=None,
        evaluate=False,
        optimizer=ADADELTA,
        monitor_interval_s=OFTEN,
    )
    return measured(trial, data, tmp_path_factory.mktemp("run"))


def test_cpu_time_of_the_ranks_is_that_which_the_kernel_counts_for_them(run: Launch):
    """The monitor reads it from outside, at its own times; ranks ask the kernel at the edges of what is timed."""
    record, samples = run.record, samples_of(run)
    by_monitor, by_kernel = [], []
    for facts in record.ranks:
        mine = samples[(samples.kind == "rank") & (samples["name"] == str(facts.rank))]
        windows = [segment.windows_s[facts.rank] for segment in record.timed_segments]
        used_s = sum(float(np.diff(np.interp(window, mine.time_s, mine.cpu_time_s))[0]) for window in windows)
        wall_s = sum(end - start for start, end in windows)
        by_monitor.append(used_s / wall_s)
        by_kernel.append(facts.cpu_time_s / wall_s)
    assert np.mean(by_monitor) == pytest.approx(np.mean(by_kernel), rel=0.05)
    assert 0.2 < np.mean(by_monitor) <= psutil.cpu_count()


def test_it_samples_at_the_rate_that_is_asked_for(run: Launch):
    times_s = samples_of(run).query("kind == 'machine'").time_s.sort_values()
    assert times_s.diff().median() == pytest.approx(OFTEN, rel=0.2)


def test_it_samples_from_before_the_first_timed_step_to_the_last(run: Launch):
    times_s, segments = samples_of(run).time_s, run.record.segments
    assert times_s.min() < run.record.timed_segments[0].windows_s[0][0]
    assert times_s.max() > segments[-1].windows_s[0][1]


def test_resident_memory_is_below_its_peak_and_shared_pages_count_once_in_the_other(run: Launch):
    samples = samples_of(run)
    for facts in run.record.ranks:
        seen = samples[(samples.kind == "rank") & (samples["name"] == str(facts.rank))].memory_bytes
        # the two are the kernel's own, which counts pages per CPU and adds them up now and then
        assert 50 * 2**20 < seen.max() <= facts.peak_memory_bytes + 2**20
        assert facts.proportional_memory_bytes is not None
        assert 20 * 2**20 < facts.proportional_memory_bytes < facts.peak_memory_bytes


def test_each_rank_says_which_cpus_it_may_run_on(run: Launch):
    assert [facts.affinity for facts in run.record.ranks] == [affinity()] * 2


def test_what_cannot_be_read_is_absent_with_its_reason(run: Launch):
    samples = samples_of(run)
    for kind in {"gpu", "package"} - set(samples.kind):
        assert run.record.monitor_absent[0][kind]
    assert samples.query("kind == 'rank'").power_w.isna().all()


def test_it_has_a_low_priority_and_the_ranks_have_not(data: Path, tmp_path: Path):
    with running(small_trial(steps=ENDLESS, batch_size_per_device=2), data, tmp_path) as started:
        started.rank_pids()
        (monitor,) = [process for process in started.survivors() if str(SCRIPTS / "sample.py") in process.cmdline()]
        assert monitor.nice() == psutil.Process().nice() + 10
        assert {process.nice() for process in map(psutil.Process, started.rank_pids())} == {psutil.Process().nice()}


def test_its_own_cpu_time_is_known(run: Launch):
    used_s = samples_of(run).query("kind == 'monitor'").cpu_time_s
    assert 0 < used_s.iloc[-1] < 5


def test_cpu_time_of_loader_workers_is_their_ranks(data: Path, tmp_path: Path):
    trial = small_trial("single", 1, steps=60, loader_workers=1, monitor_interval_s=OFTEN)
    done = measured(trial, data, tmp_path)
    used_s = samples_of(done).query("kind == 'rank'").cpu_time_s
    assert used_s.diff().min() > -0.02  # when a worker ends, its time goes over to the rank


@pytest.mark.parametrize("launcher", ["torchrun", *["mpirun"] * starts_here("mpirun")])
def test_other_launchers_have_a_monitor_as_well(launcher: str, data: Path, tmp_path: Path):
    samples = samples_of(measured(small_trial(launcher=launcher, monitor_interval_s=OFTEN), data, tmp_path))
    assert set(samples.query("kind == 'rank'")["name"]) == {"0", "1"}
    assert set(samples.node) == {0}


def test_without_an_interval_there_is_no_monitor(data: Path, tmp_path: Path):
    done = trained(small_trial(monitor_interval_s=None), data, tmp_path)
    assert samples_of(done).empty
    assert tuple(samples_of(done).columns) == tuple(SAMPLE_COLUMNS)


def test_a_monitor_that_breaks_costs_the_samples_and_not_the_trial(data: Path, tmp_path: Path):
    done = measured(small_trial(), data, tmp_path, inject="monitor_breaks")
    assert samples_of(done).empty
    assert done.record.monitor_absent[0]["rank"] == "the monitor ended with 1"
    assert "OSError: planted" in done.log


# Several nodes


@pytest.fixture(scope="module")
def late(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Two nodes; the monitor of the second one starts two seconds late."""
    trial = small_trial(nodes=2, devices_per_node=1, steps=400, warmup_steps=10, monitor_interval_s=OFTEN)
    return trained(trial, data, tmp_path_factory.mktemp("late"), inject="monitor_starts_late", rank=1)


def test_each_node_has_its_own(late: Trained):
    samples = samples_of(late)
    ranks = samples[samples.kind == "rank"]
    assert set(zip(ranks.node, ranks["name"], strict=True)) == {(0, "0"), (1, "1")}
    assert [len(late.record.machines_cpu_time_s), len(late.record.monitor_absent)] == [2, 2]


def test_a_monitor_that_starts_late_changes_no_part(late: Trained):
    first_s = samples_of(late).groupby("node").time_s.min()
    assert first_s[1] - first_s[0] > 1.9
    parts = late.steps.to_pandas()[list(PHASE_COLUMNS)]
    assert parts.max().max() < 1.0  # none of the two seconds
    quick, delayed = (facts.startup_s for facts in late.record.ranks)
    for name in quick.keys() & delayed.keys():
        assert abs(quick[name] - delayed[name]) < 1.0
    for segment in late.record.segments:
        (start, end), (other_start, other_end) = segment.windows_s
        assert abs(start - other_start) < 0.5
        assert abs(end - other_end) < 0.5


# GPUs, with a stub: NVML numbers all GPUs of the machine, whatever CUDA_VISIBLE_DEVICES says


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of which CUDA shows two GPUs, by whichever form of name that it allows: it tells UUIDs whole and bare."""
    monkeypatch.syspath_prepend(NVML)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    uuids = importlib.import_module("pynvml").UUIDS

    def properties(index: int) -> SimpleNamespace:
        shown = os.environ["CUDA_VISIBLE_DEVICES"].split(",")[index]
        (uuid,) = [uuids[int(shown)]] if shown.isdigit() else [uuid for uuid in uuids if uuid.startswith(shown)]
        return SimpleNamespace(uuid=uuid.partition("-")[2])

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)


def monitor_once(*arguments: str, **variables: str) -> tuple[list[dict], dict[str, str]]:
    """(readings, what is absent) of a monitor that is told to end at once."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "sample.py"), "--interval-s=60", "--cpus=0", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(NVML), **variables},
    )
    watched = read_back(done.stdout.splitlines(keepends=True))
    return watched.readings, watched.absent


@pytest.mark.usefixtures("gpus")
@pytest.mark.parametrize(
    ("visible", "sampled"),
    [
        ("2,3", {"GPU-2": 30, "GPU-3": None}),
        ("1,0", {"GPU-1": 20, "GPU-0": 10}),
        ("GPU-2,GPU-4e8f71a2-5b", {"GPU-2": 30, "GPU-4e8f71a2-5b": 50}),
        ("GPU-4e,GPU-1", {"GPU-4e8f71a2-5b": 50, "GPU-1": 20}),
        ("MIG-7c0de002-02,MIG-7c0de001-01", {"GPU-7c0de002-02": 70, "GPU-7c0de001-01": 60}),  # named as CUDA does
    ],
)
def test_the_gpus_that_are_sampled_are_those_that_cuda_shows(visible, sampled, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    uuids = device_uuids("cuda", [0, 1])
    readings, absent = monitor_once(*(f"--uuid={uuid}" for uuid in uuids))
    found = {reading["name"]: reading["utilization_percent"] for reading in readings if reading["kind"] == "gpu"}
    assert (uuids, found) == (list(sampled), sampled)
    assert absent.keys() & {"gpu", *uuids} == set()


@pytest.mark.usefixtures("gpus")
def test_a_gpu_that_nvml_does_not_know_does_not_silence_the_others():
    readings, absent = monitor_once("--uuid=GPU-9", "--uuid=GPU-2")
    assert [reading["name"] for reading in readings if reading["kind"] == "gpu"] == [
        "GPU-2"
    ] * 2  # first and last round
    assert absent["GPU-9"] == "NVML: Not Found"
    assert "gpu" not in absent


@pytest.mark.usefixtures("gpus")
def test_a_gpu_tells_all_that_is_asked_in_the_units_of_the_columns():
    (told,) = Gpus(["GPU-2"]).readings()
    assert told.keys() <= SAMPLE_COLUMNS.keys()
    expected = {"utilization_percent": 30, "power_w": 250.0, "sm_clock_MHz": 1980, "memory_clock_MHz": 3201}
    expected |= {"temperature_C": 61, "memory_bytes": 2**30, "processes": 1}
    assert {name: told[name] for name in expected} == expected
    assert told["throttle_reasons"] == "power cap+software thermal"


@pytest.mark.usefixtures("gpus")
def test_a_gpu_that_cannot_tell_something_leaves_it_out_and_does_not_silence_the_others():
    told, mute = Gpus(["GPU-2", "GPU-3"]).readings()
    assert (told["utilization_percent"], mute["utilization_percent"]) == (30, None)
    assert mute["memory_bytes"] == 2**30
    assert (mute["power_w"], mute["energy_j"], mute["throttle_reasons"]) == (None, None, None)


@pytest.mark.parametrize(
    ("uuid", "variables", "absent"),
    [
        ("GPU-2", {"DPSCALE_TEST_NVML": "none"}, ("gpu", "NVML: Driver Not Loaded")),
        ("GPU-9", {}, ("GPU-9", "NVML: Not Found")),
    ],
)
def test_gpus_that_nvml_does_not_know_are_absent_with_the_reason(uuid, variables, absent):
    readings, found = monitor_once(f"--uuid={uuid}", **variables)
    assert absent in found.items()
    assert {"machine", "monitor"} <= {reading["kind"] for reading in readings}


def test_an_idle_gpu_is_not_throttled():
    assert throttle_text(0x1) == ""


def reading(uuid: str, time_s: float, percent: int | None) -> dict[str, object]:
    return {"kind": "gpu", "name": uuid, "time_s": time_s, "utilization_percent": percent}


def test_utilization_of_a_rank_is_the_mean_over_its_gpus_and_the_timed_segments():
    segments = factories.a_record().segments  # timed from 100 to 102 s of the node's clock
    warmup, *timed = segments
    readings = [reading("GPU-2", time_s, percent) for time_s, percent in ((101, 20), (102, 40), (103, 90))]
    facts = factories.rank_facts(0, device_uuids=["GPU-2"])
    assert train.with_gpu_utilization(facts, [warmup, *timed], readings).gpu_utilization_percent == 30
    both = replace(facts, device_uuids=["GPU-2", "GPU-3"])
    assert train.with_gpu_utilization(both, segments, readings).gpu_utilization_percent is None
    more = [*readings, reading("GPU-3", 101, 50)]
    assert train.with_gpu_utilization(both, segments, more).gpu_utilization_percent == 40
    assert train.with_gpu_utilization(facts, segments, [reading("GPU-2", 101, None)]).gpu_utilization_percent is None


# Energy of CPU packages


def a_package(folder: Path, name: str, energy_uj: int) -> Path:
    package = folder / name
    package.mkdir(parents=True)
    for file, content in (("name", "package-0"), ("energy_uj", energy_uj), ("max_energy_range_uj", 262143328850)):
        (package / file).write_text(f"{content}\n")
    return package


def test_packages_are_counted_once_and_not_again_by_their_parts(tmp_path: Path):
    for name in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        a_package(tmp_path, name, 5_000_000)
    packages, reason = readable_packages(tmp_path)
    assert ([package.name for package in packages], reason) == (["intel-rapl:0", "intel-rapl:1"], None)


def test_a_counter_that_only_root_may_read_is_absent_with_its_path(tmp_path: Path):
    package = a_package(tmp_path, "intel-rapl:0", 0)
    (package / "energy_uj").unlink()
    (package / "energy_uj").mkdir()  # to be refused for root as well
    packages, reason = readable_packages(tmp_path)
    assert packages == []
    assert reason is not None
    assert f"{package}/energy_uj: " in reason


def test_a_machine_without_rapl_says_so(tmp_path: Path):
    assert readable_packages(tmp_path) == ([], f"no RAPL: {tmp_path} has no CPU package")


def test_a_line_that_was_cut_short_does_not_count():
    lines = io.BytesIO(json.dumps({"kind": "machine", "time_s": 1.0}).encode() + b"\n" + b'{"kind": "mach')
    assert read_back(lines).readings == [{"kind": "machine", "time_s": 1.0}]
