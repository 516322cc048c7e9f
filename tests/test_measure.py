"""Measuring: what a record says is what happened, seen from outside."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from launching import (
    ADADELTA,
    TEST_SAMPLES,
    TRAIN_SAMPLES,
    Launch,
    launch_command,
    launch_environment,
    measured,
    small_trial,
    trained,
)

from dpscale import measure, metrics
from dpscale.monitoring.monitor import CpuUsage
from dpscale.phases import LAUNCHED, PHASE_COLUMNS, STARTUP_PARTS
from dpscale.record import RECORD, Record
from dpscale.workloads.loading import Batch, TrainingStream
from dpscale.world import World

ONE_RANK = World(rank=0, local_rank=0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))
WARMUP_EPOCHS, EPOCHS = 2, 18
A_BATCH = (torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))


# The clock


class Clock:
    """A clock that moves only when a phase of a step takes its time."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s


class ClockworkStep:
    """A step whose phases take known times, in binary fractions of a second."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def parts(self, batch: Batch) -> list[Batch]:
        return [batch]

    def forward(self, part: Batch, last: bool) -> torch.Tensor:
        self.clock.now_s += 0.25
        return torch.tensor(2.0)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        self.clock.now_s += 0.5

    def update(self) -> None:
        self.clock.now_s += 0.125


def batches_after(clock: Clock, wait_s: float, count: int) -> Iterator[Batch]:
    for _ in range(count):
        clock.now_s += wait_s
        yield A_BATCH
    clock.now_s += 8.0  # the loader's workers take a while to end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measure, "time", clock)
    return clock


def test_each_phase_of_a_step_has_its_own_time(clock: Clock):
    interval = measure.time_steps(batches_after(clock, 1.0, 3), ClockworkStep(clock), ONE_RANK, 3)
    assert interval.phase_times_s == [(1.0, 0.25, 0.5, 0.125)] * 3
    assert measure.as_columns(interval)["data_wait_s"] == [1.0] * 3


def test_an_interval_lasts_from_before_the_loader_starts_until_it_has_ended(clock: Clock):
    interval = measure.time_steps(batches_after(clock, 1.0, 3), ClockworkStep(clock), ONE_RANK, 3)
    steps_s = sum(map(sum, interval.phase_times_s))
    assert interval.ended_s - interval.started_s == steps_s + 8.0


def test_samples_are_those_that_the_loader_delivered(clock: Clock):
    interval = measure.time_steps(batches_after(clock, 0, 2), ClockworkStep(clock), ONE_RANK, 2)
    assert interval.samples == [4, 4]
    assert interval.losses == [2.0, 2.0]


@pytest.mark.parametrize(("delivered", "error"), [(2, "delivered 2 batches, 3 were expected"), (4, "more than the 3")])
def test_a_loader_with_fewer_or_more_batches_is_refused(delivered: int, error: str, clock: Clock):
    with pytest.raises(RuntimeError, match=error):
        measure.time_steps(batches_after(clock, 0, delivered), ClockworkStep(clock), ONE_RANK, 3)


def test_a_call_is_timed_alone(clock: Clock):
    def call() -> str:
        clock.now_s += 4.0
        return "result"

    assert measure.time_call(call, ONE_RANK) == ("result", (100.0, 104.0))


def test_devices_are_drained_at_the_edges_of_an_interval_and_not_within(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    drained: list[int] = []
    event = SimpleNamespace(record=lambda: None, elapsed_time=lambda later: 1.0)
    monkeypatch.setattr(torch.cuda, "synchronize", drained.append)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: event)
    two_devices = replace(ONE_RANK, device=torch.device("cuda", 0), devices_per_node=2)
    interval = measure.time_steps(batches_after(clock, 0, 5), ClockworkStep(clock), two_devices, 5)
    assert drained == [0, 1, 0, 1]
    assert interval.phase_times_s == [(0.001,) * 4] * 5  # events count milliseconds


class ExchangingStep(ClockworkStep):
    """Two buckets are ready in the middle and at the end of backward; each takes a quarter of a second."""

    def __init__(self, clock: Clock, buckets: measure.BucketClock) -> None:
        super().__init__(clock)
        self.buckets = buckets

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        for number in (0, 1):
            self.clock.now_s += 0.25
            self.buckets.ready(number)
        for number in (1, 0):
            self.clock.now_s += 0.25
            self.buckets.exchanged(number)


def test_stamps_are_of_the_steps_after_the_lead_in_and_of_their_buckets(clock: Clock):
    buckets = measure.BucketClock(ONE_RANK)
    step = ExchangingStep(clock, buckets)
    stamps = measure.stamp_steps(batches_after(clock, 1.0, 4), step, ONE_RANK, buckets, lead_in=1, num_steps=2)
    lasts = 1.0 + 0.25 + 1.0 + 0.125
    assert stamps.start_s == [lasts, 2 * lasts]
    assert stamps.batch_s == [start + 1.0 for start in stamps.start_s]
    assert stamps.forward_s == [start + 1.25 for start in stamps.start_s]
    assert stamps.ready_s == [[start + 1.5, start + 1.75] for start in stamps.start_s]
    assert stamps.exchanged_s == [[start + 2.25, start + 2.0] for start in stamps.start_s]
    assert stamps.backward_s == [start + 2.25 for start in stamps.start_s]
    assert stamps.update_s == [2 * lasts, 3 * lasts]


def test_on_cuda_stamps_are_events_that_are_read_when_the_device_is_drained(monkeypatch: pytest.MonkeyPatch):
    log: list[str] = []
    clock = Clock()

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at_s = clock.now_s

        def elapsed_time(self, end: Event) -> float:
            log.append("read")
            return 1000 * (end.at_s - self.at_s)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda index: log.append("drained"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    on_cuda = replace(ONE_RANK, device=torch.device("cuda", 0))
    buckets = measure.BucketClock(on_cuda)
    step = ExchangingStep(clock, buckets)
    stamps = measure.stamp_steps([A_BATCH] * 2, step, on_cuda, buckets, lead_in=0, num_steps=2)
    assert log[:2] == ["drained", "drained"]
    assert set(log[2:]) == {"read"}
    assert stamps.ready_s[0] == [0.5, 0.75]


def test_loader_workers_end_inside_the_interval_that_started_them(data: Path):
    stream = TrainingStream(small_trial("single", 1, loader_workers=2), data, 0, ONE_RANK.device)
    workers_seen = []

    class Step(ClockworkStep):
        def update(self) -> None:
            workers_seen.append(len(psutil.Process().children()))

    before = len(psutil.Process().children())
    usage = CpuUsage()
    with usage.counted(True):
        batches = stream.batches(0, 4)
        measure.time_steps(batches, Step(Clock()), ONE_RANK, 4)
    assert max(workers_seen) >= before + 2
    assert len(psutil.Process().children()) == before


def test_a_mark_is_set_before_and_after_each_phase(clock: Clock):
    assert measure.time_steps(batches_after(clock, 0, 2), ClockworkStep(clock), ONE_RANK, 2).marks_per_step == 4


def test_what_a_mark_costs_is_measured(monkeypatch: pytest.MonkeyPatch):
    """Marks that take 100 us, by a clock that this process does not know."""

    def slow_clock() -> float:
        now_s = time.perf_counter()
        while time.perf_counter() < now_s + 1e-4:
            pass
        return now_s

    monkeypatch.setattr(measure, "COST_ROUNDS", 5)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=slow_clock))
    assert 0.9e-4 < measure.cost_of_a_mark_s(ONE_RANK) < 5e-4


def test_parts_of_the_start_up_follow_each_other(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LAUNCHED, str(1_000_000_000))
    monkeypatch.setattr(clock, "time_ns", lambda: 3_500_000_000, raising=False)
    laps = measure.Laps()
    clock.now_s += 0.5
    laps.end("import_s")
    clock.now_s += 0.25
    laps.end("rendezvous_s")
    assert laps.times_s == {"import_s": 3.0, "rendezvous_s": 0.25}


def test_a_start_that_nobody_stamped_has_no_first_part(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(LAUNCHED, raising=False)
    laps = measure.Laps()
    laps.end("import_s")
    clock.now_s += 0.25
    laps.end("rendezvous_s")
    assert laps.times_s == {"rendezvous_s": 0.25}


# A run, seen from outside


@pytest.fixture(scope="module")
def long_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Two ranks for some seconds; each epoch has an evaluation."""
    trial = small_trial(
        batch_size_per_device=16,
        epochs=WARMUP_EPOCHS + EPOCHS,
        warmup_epochs=WARMUP_EPOCHS,
        steps=None,
        warmup_steps=None,
        optimizer=ADADELTA,
        timeout_s=300.0,
    )
    return measured(trial, data, tmp_path_factory.mktemp("long"), inject="count_samples")


def test_recorded_samples_are_those_that_a_counting_loader_handed_out(long_run: Launch):
    record = long_run.record
    of_the_gate = record.trial.batch_size_per_rank  # one batch, before the training
    for rank, counts in enumerate(long_run.found("samples")):
        assert sum(segment.samples[rank] for segment in record.segments) + of_the_gate == counts[str(TRAIN_SAMPLES)]
    evaluated = sum(counts[str(TEST_SAMPLES)] for counts in long_run.found("samples"))
    assert sum(segment.evaluation.samples for segment in record.segments) == evaluated


def test_warmup_is_kept_apart(long_run: Launch):
    record, steps = long_run.record, long_run.steps.to_pandas()
    assert [segment.warmup for segment in record.segments] == [True] * WARMUP_EPOCHS + [False] * EPOCHS
    assert steps.groupby("segment")["warmup"].first().tolist() == [True] * WARMUP_EPOCHS + [False] * EPOCHS
    assert sum(sum(segment.samples) for segment in record.timed_segments) == EPOCHS * TRAIN_SAMPLES


def test_the_times_of_a_record_fill_the_wall_clock_that_launch_saw(long_run: Launch):
    seen_s = {text: float(time) for time, text in re.findall(r"\[ *([\d.]+)\] \[rank 0\] (steps \w+)", long_run.log)}
    wall_s = seen_s["steps end"] - seen_s["steps begin"]
    parts = [part for segment in long_run.record.segments for part in (segment, segment.evaluation)]
    windows = [part.windows_s[0] for part in parts]
    recorded_s = sum(end - start for start, end in windows)
    assert recorded_s == pytest.approx(wall_s, rel=0.05)


def test_phases_add_up_to_their_segment(long_run: Launch):
    steps = long_run.steps.to_pandas()
    phases_s = steps[list(PHASE_COLUMNS)].sum(axis=1).groupby([steps["segment"], steps["rank"]])
    for index, segment in enumerate(long_run.record.segments):
        for rank, (start, end) in enumerate(segment.windows_s):
            summed_s = phases_s.sum()[index, rank]
            assert 0.9 * (end - start) < summed_s <= end - start


def test_parts_of_the_start_up_fill_the_time_from_the_launch_to_the_first_step(long_run: Launch):
    seen_s = {
        text: float(time)
        for time, text in re.findall(r"\[ *([\d.]+)\] (?:\[rank 0\] )?(steps begin|\$ )", long_run.log)
    }
    wall_s = seen_s["steps begin"] - seen_s["$ "]
    for facts in long_run.record.ranks:
        assert list(facts.startup_s) == [name for name in STARTUP_PARTS if name != "compile_s"]
        assert min(facts.startup_s.values()) >= 0
    assert sum(long_run.record.ranks[0].startup_s.values()) == pytest.approx(wall_s, abs=0.2)


def test_measuring_takes_next_to_nothing_of_a_step_and_is_known(long_run: Launch):
    steps = {name: long_run.steps[name].to_numpy() for name in long_run.steps.column_names}
    assert 0 < metrics.measuring_overhead_percent(long_run.record, steps) < 2


def test_cpu_use_is_plausible(long_run: Launch):
    record = long_run.record
    wall_s = sum(end - start for segment in record.timed_segments for start, end in segment.windows_s[:1])
    capacity_s = wall_s * psutil.cpu_count()
    ranks_s = sum(facts.cpu_time_s for facts in record.ranks)
    left_to_ranks = 1 - (record.machines_cpu_time_s[0] - ranks_s) / capacity_s  # others may use this machine, too
    for facts in record.ranks:
        assert 0.2 * left_to_ranks < facts.cpu_time_s / wall_s < 1.1 * facts.threads
    assert ranks_s <= 1.05 * record.machines_cpu_time_s[0] <= 1.2 * capacity_s


def test_nothing_of_cuda_is_claimed_on_a_cpu(long_run: Launch):
    for facts in long_run.record.ranks:
        assert (facts.peak_allocated_bytes, facts.peak_reserved_bytes, facts.gpu_utilization_percent) == (None,) * 3
        assert facts.device_uuids == []


def test_the_first_step_is_not_charged_with_another_ranks_start_up(data: Path, tmp_path: Path):
    done = trained(small_trial(evaluate=False), data, tmp_path, inject="starts_late", rank=1)
    start_of_rank_0, _ = done.record.segments[0].windows_s[0]
    start_of_rank_1, _ = done.record.segments[0].windows_s[1]
    assert abs(start_of_rank_0 - start_of_rank_1) < 1.0
    steps = done.steps.to_pandas()
    assert steps[steps["step"] == 0][["data_wait_s", "forward_s"]].max().max() < 1.5


def test_a_slow_loader_shows_as_data_wait(data: Path, tmp_path: Path):
    steps = trained(small_trial("single", 1), data, tmp_path, inject="slow_loader").steps.to_pandas()
    assert steps["data_wait_s"].min() >= 0.02
    assert steps[["forward_s", "optimizer_s"]].median().max() < 0.02


def test_peak_memory_is_the_ranks_own_and_not_its_starters(data: Path, tmp_path: Path):
    trial = small_trial(evaluate=False)
    command = launch_command(trial, data, tmp_path / "large")
    large_parent = f"import subprocess; held = bytearray(b'x') * {800 * 2**20}; subprocess.run({command!r}, check=True)"
    subprocess.run([sys.executable, "-c", large_parent], env=launch_environment(tmp_path), timeout=120, check=True)
    large = Record.read(tmp_path / "large" / RECORD)
    small = measured(trial, data, tmp_path / "small").record
    for of_large, of_small in zip(large.ranks, small.ranks, strict=True):
        assert of_small.peak_memory_bytes > 50 * 2**20
        assert of_large.peak_memory_bytes == pytest.approx(of_small.peak_memory_bytes, rel=0.1)
