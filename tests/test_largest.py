"""`batch: {per_device: largest}`: the search, its file, the trial that takes its batch, and the rule that joins them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import MACHINE, a_config, a_record, a_trial, an_unavailable_record, measured, rank_facts
from hypothesis import given
from hypothesis import strategies as st
from launching import SCRIPTS, TESTS, Launch, launch, launch_environment, small_trial, wait_until
from pipeline import Checkout, small_config, small_experiment

import largest_batch
from dpscale import largest, metrics
from dpscale.config import load_config
from dpscale.errors import ConfigError, UserError
from dpscale.largest import NothingFits, Search, Try, largest_that_fits, probe_of, with_headroom, with_its_batch
from dpscale.launching import attempt
from dpscale.planning.plan import plan_trials, upper_bound_device_hours
from dpscale.record import Record
from dpscale.tables import make_tables

SIZES = st.integers(1, 5000)


def a_trial_to_search_for(**changes: Any):
    values = {"scaling": "largest", "batch_size_per_device": None, "headroom_percent": 5.0, "device": "cuda"}
    return a_trial(**{**values, **changes})


def a_search(trial=None, **changes: Any) -> Search:
    values: dict[str, Any] = {
        "probe": probe_of(trial or a_trial_to_search_for()),
        "status": "ok",
        "reason": None,
        "fits": 100,
        "limit": 700,
        "tries": [a_try(64), a_try(128, fits=False)],
        "environment": dict(MACHINE),
    }
    return Search(**{**values, **changes})


def a_try(batch: int, fits: bool = True) -> Try:
    peak = batch * 1000 if fits else None
    return Try(
        batch_size_per_device=batch,
        fits=fits,
        reason=None if fits else "rank 0 failed with OutOfMemoryError",
        peak_allocated_bytes=peak,
        peak_reserved_bytes=peak,
        peak_memory_bytes=peak,
    )


# The search


class Device:
    """Holds so many samples, and remembers what was asked of it."""

    def __init__(self, holds: int) -> None:
        self.holds, self.asked = holds, list[int]()

    def fits(self, size: int) -> bool:
        self.asked.append(size)
        return size <= self.holds


@given(holds=SIZES, start=SIZES, limit=SIZES)
def test_the_largest_is_found_whatever_it_is_and_no_size_is_tried_twice(holds, start, limit):
    device = Device(holds)
    assert largest_that_fits(device.fits, start, limit) == min(holds, limit)
    assert len(device.asked) == len(set(device.asked))
    assert max(device.asked) <= limit


@given(holds=SIZES, limit=SIZES, multiple_of=st.integers(1, 7))
def test_a_batch_in_parts_is_searched_among_its_multiples(holds, limit, multiple_of):
    device = Device(max(holds, multiple_of))
    found = largest_that_fits(device.fits, 32, max(limit, multiple_of), multiple_of=multiple_of)
    assert found == min(device.holds, max(limit, multiple_of)) // multiple_of * multiple_of
    assert not [size for size in device.asked if size % multiple_of]


@given(holds=SIZES, limit=SIZES)
def test_to_one_percent_it_fits_and_what_is_larger_by_more_than_that_does_not(holds, limit):
    found = largest_that_fits(Device(holds).fits, 32, limit, precision_percent=1.0)
    exact = min(holds, limit)
    assert found <= exact <= found + max(1.0, found / 100)


def test_it_doubles_and_then_halves_what_is_in_question():
    device = Device(100)
    assert largest_that_fits(device.fits, 32, 10_000) == 100
    assert device.asked == [32, 64, 128, 96, 112, 104, 100, 102, 101]


def test_where_nothing_fails_the_samples_are_the_limit():
    device = Device(10**9)
    assert largest_that_fits(device.fits, 32, 100) == 100
    assert device.asked == [32, 64, 100]


def test_where_nothing_fits_that_is_an_error():
    with pytest.raises(NothingFits, match="a batch of 1 per device does not fit"):
        largest_that_fits(Device(0).fits, 32, 100)


@pytest.mark.parametrize(
    ("fits", "percent", "parts", "batch"),
    [(100, 5.0, 1, 95), (100, 0.0, 1, 100), (99, 5.0, 1, 94), (100, 5.0, 4, 92), (1, 5.0, 1, 1), (4, 50.0, 4, 4)],
)
def test_the_batch_stays_below_what_fits_and_divides_into_its_parts(fits, percent, parts, batch):
    assert with_headroom(fits, percent, parts) == batch


def test_all_repeats_of_a_cell_share_one_search_and_their_length_does_not_matter():
    trial = a_trial_to_search_for()
    same = replace(trial, repeat=3, seed=3, epochs=None, warmup_epochs=None, steps=90, warmup_steps=9)
    assert probe_of(same) == probe_of(replace(trial, headroom_percent=20.0)) == probe_of(trial)
    for field, value in {"precision": "bf16", "evaluate": False, "options": {"static_graph": True}}.items():
        assert probe_of(replace(trial, **{field: value})) != probe_of(trial)


# The script, with launches that are none


COUNTS = {"train": 1000, "test": 103}


def searched(launch: largest_batch.Launch, said: list[str] | None = None, **changes: Any) -> Search:
    probe = probe_of(a_trial_to_search_for(**changes))
    return largest_batch.search(probe, COUNTS, launch, [].append if said is None else said.append)


def device_of(holds: int, tried: list[Any] | None = None) -> largest_batch.Launch:
    """Launches on two devices that hold so many samples each."""

    def launch(trial):
        if tried is not None:
            tried.append(trial)
        if trial.batch_size_per_device > holds:
            return None, "rank 1 failed with OutOfMemoryError: CUDA out of memory."
        bytes_ = trial.batch_size_per_device * 2**20
        facts = [rank_facts(rank, peak_allocated_bytes=bytes_, peak_reserved_bytes=bytes_ + rank) for rank in (0, 1)]
        return a_record(trial, ranks=facts), ""

    return launch


def test_every_try_is_left_with_its_outcome_and_its_peak():
    said: list[str] = []
    found = searched(device_of(70), said)
    assert (found.status, found.fits, found.limit) == ("ok", 70, 500)
    assert [(item.batch_size_per_device, item.fits) for item in found.tries][:3] == [
        (32, True),
        (64, True),
        (128, False),
    ]
    fitting, failed = found.tries[1], found.tries[2]
    assert (fitting.peak_allocated_bytes, fitting.peak_reserved_bytes) == (64 * 2**20, 64 * 2**20 + 1)
    assert (failed.peak_allocated_bytes, failed.reason) == (
        None,
        "rank 1 failed with OutOfMemoryError: CUDA out of memory.",
    )
    assert found.environment == MACHINE
    assert said[1:3] == ["64 per device: fits, 64 MiB reserved at the peak", "128 per device: does not fit"]


def test_a_try_trains_some_steps_and_evaluates_one_batch_of_each_rank_at_most():
    tried: list[Any] = []
    searched(device_of(70, tried), epochs=90, warmup_epochs=9)
    assert {(trial.epochs, trial.steps, trial.warmup_steps) for trial in tried} == {(None, 4, 1)}
    assert [(trial.batch_size_per_device, trial.test_samples) for trial in tried][:2] == [(32, 64), (64, 103)]


def test_no_more_samples_are_asked_for_than_the_trial_has():
    found = searched(device_of(10**9), train_samples=150)
    assert (found.fits, found.limit) == (75, 75)


def test_a_batch_in_parts_is_tried_in_wholes():
    tried: list[Any] = []
    found = searched(device_of(70, tried), options={"accumulation_steps": 8})
    assert found.fits == 64
    assert not [trial for trial in tried if trial.batch_size_per_device % 8]


def test_another_failure_than_of_memory_ends_the_search():
    def launch(trial):
        raise UserError("rank 0 failed with RuntimeError: planted")

    with pytest.raises(UserError, match="planted"):
        searched(launch)


def test_where_one_sample_does_not_fit_the_error_is_named_with_a_remedy():
    with pytest.raises(UserError, match=r"1 per device does not fit into its memory: rank 1 failed .*; use a smaller"):
        searched(device_of(0))


def test_a_cell_that_is_unavailable_has_no_batch_but_the_reason():
    found = searched(lambda trial: (an_unavailable_record(trial, "needs 2 CUDA devices"), ""))
    assert (found.status, found.reason, found.fits, found.tries) == ("unavailable", "needs 2 CUDA devices", None, [])


def a_search_as_the_rule_starts_it(data: Path, folder: Path) -> list[str]:
    trial = small_trial(scaling="largest", batch_size_per_device=None, headroom_percent=5.0)
    script = [sys.executable, str(SCRIPTS / "largest_batch.py"), f"--data={data}"]
    return [*script, f"--folder={folder}", f"--log={folder / 'search.log'}", *trial.to_args()]


def test_a_signal_to_a_search_leaves_nothing_of_its_try_behind(data: Path, tmp_path: Path):
    command = a_search_as_the_rule_starts_it(data, tmp_path)
    environment = launch_environment(tmp_path, "announce_ranks,hangs")
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    started = Launch(tmp_path, process)
    wait_until(lambda: len(started.found("pid")) == 2, "the ranks of a try")
    process.send_signal(signal.SIGTERM)
    assert started.end(30).returncode == 128 + signal.SIGTERM
    assert started.leaves_nothing_behind()
    assert not (tmp_path / largest.FILE).exists()


def test_each_attempt_at_a_search_keeps_its_logs_until_there_is_another_search(data: Path, tmp_path: Path):
    command = a_search_as_the_rule_starts_it(data, tmp_path)
    for number in (1, 2):
        (tmp_path / "search.log").unlink(missing_ok=True)  # as Snakemake does before it runs a job again
        done = subprocess.run(
            command, env=launch_environment(tmp_path, "raises"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "the try of 32 per device failed" in done.stderr
        for attempted in range(1, number + 1):
            assert "the try of 32 per device failed" in (tmp_path / f"search.attempt-{attempted}.log").read_text()
            assert "planted" in (tmp_path / f"tries/attempt-{attempted}/32.log").read_text()
    assert (tmp_path / "search.log").resolve() == (tmp_path / "search.attempt-2.log").resolve()
    assert largest_batch._logs_of_tries(tmp_path, 1) == tmp_path / "tries/attempt-1"
    assert not (tmp_path / "tries").exists()


# What is out of memory


class OutOfMemoryError(RuntimeError):
    """Called as torch's is."""


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("NCCL error: unhandled cuda error\nLast error:\nCuda failure 2 'out of memory'"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), False),
        (RuntimeError("planted"), False),
        (UserError("needs 3 MiB of shared memory"), False),
    ],
)
def test_a_devices_memory_is_told_from_other_failures(error, is_memory, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    attempt.write_failure(tmp_path, error)
    assert isinstance(attempt.failure_of(tmp_path, 1), attempt.OutOfMemory) == is_memory


def test_a_lost_connection_to_the_rank_that_had_no_memory_hides_nothing_and_a_kill_is_no_devices_memory(tmp_path):
    for rank, (when, memory) in enumerate([(2, False), (1, True)]):
        failure = {"when_ns": when, "message": f"of rank {rank}", "out_of_memory": memory}
        (tmp_path / f"failure-{rank}.json").write_text(json.dumps(failure))
    assert isinstance(attempt.failure_of(tmp_path, 1), attempt.OutOfMemory)
    attempt.write_exit(tmp_path, 0, -9)
    assert not isinstance(attempt.failure_of(tmp_path, 1), attempt.OutOfMemory)


def test_a_launch_says_by_its_exit_code_that_one_rank_had_no_memory(data: Path, tmp_path: Path):
    done = launch(small_trial(), data, tmp_path, inject="little_memory", rank=1, DPSCALE_TEST_HOLDS="4")
    assert done.returncode == attempt.OUT_OF_MEMORY
    assert "rank 1 failed with OutOfMemoryError: CUDA out of memory" in done.stderr
    assert done.leaves_nothing_behind()


# The file, and the trial that takes its batch


def test_a_search_comes_back_as_it_was_written(tmp_path):
    search = a_search()
    search.write(tmp_path)
    assert Search.read(tmp_path / largest.FILE) == search


@pytest.mark.parametrize("change", [lambda text: text[: len(text) // 2], lambda text: "{}", lambda text: text + "x"])
def test_a_file_that_is_no_whole_search_is_refused_with_the_remedy(change: Callable[[str], str], tmp_path):
    a_search().write(tmp_path)
    path = tmp_path / largest.FILE
    path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match=r"largest.json: no whole search .*; delete .* and run the same command again"):
        Search.read(path)


def test_a_trial_takes_the_batch_of_its_search_and_is_still_the_planned_one(tmp_path):
    trial = a_trial_to_search_for(repeat=2, seed=2)
    a_search(trial).write(tmp_path)
    found, facts = with_its_batch(trial, tmp_path / largest.FILE)
    assert (found.batch_size_per_device, found.global_batch_size) == (95, 190)
    assert facts == {"fits": 100, "limit": 700, "tries": 2, "device_model": None}
    assert found.planned == trial
    assert found != trial


def test_the_search_of_another_configuration_is_refused(tmp_path):
    a_search().write(tmp_path)
    with pytest.raises(UserError, match="of another configuration"):
        with_its_batch(a_trial_to_search_for(precision="bf16"), tmp_path / largest.FILE)


def test_a_trial_without_a_batch_and_without_a_search_is_refused():
    with pytest.raises(UserError, match="give --batch-size-per-device, or the --largest file"):
        with_its_batch(a_trial_to_search_for(), None)


def test_a_trial_with_a_batch_needs_no_search():
    assert with_its_batch(a_trial(), None) == (a_trial(), None)


def test_where_the_search_was_unavailable_the_trial_is_too_and_says_so_itself(data: Path, tmp_path: Path):
    """nn.DataParallel on a CPU, through a real launch."""
    trial = small_trial(
        "data_parallel", launcher="spawn", scaling="largest", batch_size_per_device=None, headroom_percent=5.0
    )
    a_search(trial, status="unavailable", reason="needs CUDA devices", fits=None, tries=[]).write(tmp_path)
    done = launch(trial, data, tmp_path, more=[f"--largest={tmp_path / largest.FILE}"])
    assert done.returncode == 0, done.stderr
    assert (done.record.status, done.record.trial) == ("unavailable", trial)
    assert "needs CUDA devices" in (done.record.reason or "")


# The plan


def plan(**changes: Any):
    config = a_config(**{"device": "cuda", "batch": {"per_device": "largest"}, **changes})
    return plan_trials(load_config(config))["quick"]


def refusal(**changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(**changes)
    return str(caught.value)


def test_a_plan_leaves_the_batch_open_and_says_how_far_below_the_largest_it_stays():
    found = {(t.scaling, t.batch_size_per_device, t.global_batch_size, t.headroom_percent) for t in plan()}
    assert found == {("largest", None, None, 5.0)}
    assert {t.headroom_percent for t in plan(batch={"per_device": "largest", "headroom_percent": 10})} == {10.0}


def test_the_searches_are_in_the_bound_of_device_hours():
    (trial,) = plan(strategies={"ddp": None}, topologies=["1x2"], launchers=["spawn"], repeats=1, timeout_s=1800)
    assert upper_bound_device_hours([trial]) == 2 * 0.5 + 2 * 4 * 0.5
    assert upper_bound_device_hours([trial, replace(trial, repeat=1)]) == 2 * 2 * 0.5 + 2 * 4 * 0.5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device": "cpu"}, "batch.per_device = 'largest': with device: cpu ranks share the machine's memory"),
        ({"batch": {"per_device": "larges"}}, "batch.per_device = 'larges': input should be an integer, or largest"),
        ({"batch": {"per_device": 8, "headroom_percent": 5}}, "headroom_percent goes with per_device: largest"),
        ({"batch": {"global": 8, "headroom_percent": 5}}, "headroom_percent goes with per_device: largest"),
        ({"batch": {"per_device": "largest", "headroom_percent": 100}}, "headroom_percent = 100"),
        ({"workload": {"train_samples": 1}}, "2 devices x 1 samples need 2 training samples"),
    ],
)
def test_what_can_have_no_largest_batch_is_refused(changes, said):
    assert said in refusal(**changes)


# Tables


def cell(batch: int, **changes: Any):
    """A measured trial whose batch a search found."""
    trial = a_trial_to_search_for(device="cpu", **changes)
    facts = {"fits": batch, "limit": 700, "tries": 5, "device_model": None}
    _, record, steps = measured(replace(trial, batch_size_per_device=batch))
    return trial, replace(record, launch={**record.launch, "largest_batch": facts}), steps


def test_tables_show_the_batch_that_was_found_and_none_where_there_is_none_yet():
    missing = a_trial_to_search_for(device="cpu", repeat=1)
    tables = make_tables([(missing, None, None), cell(95)])
    timings, summary = tables["timings"], tables["summary"]
    assert timings.to_csv(columns=["batch_size_per_device", "global_batch_size"], index=False) == (
        "batch_size_per_device,global_batch_size\n,\n95,190\n"
    )
    assert (summary.batch_size_per_device.iloc[0], summary.scaling.iloc[0]) == (95, "largest")


def test_a_record_of_another_configuration_is_refused_whatever_its_batch():
    planned, record, steps = cell(95)
    with pytest.raises(UserError, match="of another configuration"):
        make_tables([(replace(planned, seed=9), record, steps)])


def test_a_cell_with_another_batch_than_its_base_says_so():
    one = cell(100, strategy="single", devices_per_node=1)
    summary = make_tables([one, cell(95)])["summary"]
    assert summary.warnings.tolist() == ["", "another batch per device than its base: 95, there 100"]


def test_a_limit_that_is_not_the_memorys_is_told_and_so_is_a_batch_of_another_device():
    def warnings(**facts: Any) -> list[str]:
        record: Record = cell(95)[1]
        search = {**record.launch["largest_batch"], **facts}
        return metrics.warnings(replace(record, launch={**record.launch, "largest_batch": search}))

    assert warnings() == []
    assert warnings(limit=95) == ["largest batch: the training samples are the limit and not the memory"]
    assert warnings(device_model="A") == ["largest batch: found on another kind of device, A"]


# The pipeline, on a CPU whose ranks say that more than four samples are too many


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    experiment = small_experiment(
        workload={"dataset": "synthetic", "model_options": {"dropout": False}, "train_samples": 6},
        strategies={"single": None},
        batch={"per_device": "largest", "headroom_percent": 20},
        evaluate=False,
    )
    return Checkout.fresh(tmp_path_factory.mktemp("largest") / "dpscale", small_config(experiment))


SHORT_OF_MEMORY = {
    "PYTHONPATH": str(TESTS / "injected"),
    "DPSCALE_TEST_INJECT": "searches_on_the_cpu,little_memory",
    "DPSCALE_TEST_HOLDS": "4",
    "DPSCALE_TEST_RANK": "all",
}


def test_without_a_gpu_nothing_starts(checkout: Checkout):
    assert "batch.per_device = 'largest': with device: cpu" in checkout.refused("-n")


def test_a_search_comes_before_the_trials_of_its_cell_and_its_batch_is_the_one_that_they_measure(checkout: Checkout):
    jobs = checkout.dry_run("tables", **SHORT_OF_MEMORY).jobs
    assert (jobs["largest_batch"], jobs["trial"]) == (1, 1)
    assert "at most" in checkout.run("plan", **SHORT_OF_MEMORY).output

    checkout.run("tables", **SHORT_OF_MEMORY)
    search = Search.read(checkout.results("small/largest/single/spawn/1x1/largest.json"))
    assert [(item.batch_size_per_device, item.fits) for item in search.tries] == [
        (6, False),
        (3, True),
        (4, True),
        (5, False),
    ]
    assert (search.fits, search.limit) == (4, 6)
    assert "OutOfMemoryError" in (search.tries[0].reason or "")
    log = checkout.results("small/largest/single/spawn/1x1/search.log")
    assert not log.is_symlink()
    assert "6 per device: does not fit" in log.read_text()
    assert (log.parent / "tries/attempt-1/4.log").is_file()
    (record,) = checkout.records()
    assert record["trial"]["batch_size_per_device"] == 3  # 20 % below 4
    assert record["launch"]["largest_batch"]["fits"] == 4
    assert checkout.table("summary").batch_size_per_device.tolist() == [3]
    assert checkout.dry_run("tables", **SHORT_OF_MEMORY).jobs == {}

    checkout.configure(changed_headroom(checkout.config, 50))
    assert checkout.dry_run("tables", **SHORT_OF_MEMORY).jobs.keys() == {
        "trial",
        "collect",
        "collect_predictions",
        "advise",
        "tables",
    }


def changed_headroom(config: dict[str, Any], percent: float) -> dict[str, Any]:
    config["experiments"]["small"]["batch"]["headroom_percent"] = percent
    return config
