"""The only clock of a training step: every trial of every strategy is timed by `time_steps`."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import torch

from dpscale.explaining.stamps import Stamps
from dpscale.phases import LAUNCHED, PHASE_COLUMNS
from dpscale.workloads.loading import Batch
from dpscale.world import World

Result = TypeVar("Result")
COST_ROUNDS, COST_MARKS = 20, 100  # of finding out what a mark costs


class Step(Protocol):
    """One optimiser step in single calls, so that the clock can stand between them."""

    def parts(self, batch: Batch) -> list[Batch]: ...

    def forward(self, part: Batch, last: bool) -> torch.Tensor: ...

    def backward(self, loss: torch.Tensor, last: bool) -> None: ...

    def update(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Interval:
    """One rank's steps between two meetings of all ranks. Times in seconds of the machine's monotonic clock."""

    started_s: float
    ended_s: float
    phase_times_s: list[tuple[float, ...]]  # [step][phase], in the order of PHASE_COLUMNS
    samples: list[int]  # [step], as the loader delivered them
    losses: list[float]  # [step], mean over this rank's samples, whose parts are equal
    marks_per_step: int  # that the clock stood at


class _CpuClock:
    """The host's: on the CPU a call returns when its work is done."""

    def now(self) -> float:
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        return end - start


class _CudaClock:
    """CUDA events in the stream: the host runs ahead, and draining the device at each mark would forbid overlap.

    What lies between two events is the device's time, its idle time included: a data wait is seen as far as it really
    holds up the device. Only after the device is drained can they be compared.
    """

    def now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return start.elapsed_time(end) / 1000


def _clock_of(world: World) -> Any:
    return _CudaClock() if world.device.type == "cuda" else _CpuClock()


def cost_of_a_mark_s(world: World) -> float:
    """What one mark costs this process here and now, in s of the host. To be asked after the timed steps: on CUDA they may
    cost less, where the host runs ahead of the device."""
    times_s = []
    for _ in range(COST_ROUNDS):
        clock, marks = _clock_of(world), list[Any]()
        started_s = time.perf_counter()
        for _ in range(COST_MARKS):
            marks.append(clock.now())
        times_s.append((time.perf_counter() - started_s) / COST_MARKS)
    world.synchronize()
    return statistics.median(times_s)


def never(steps: int) -> bool:
    return False


def time_steps(
    batches: Iterable[Batch], step: Step, world: World, num_steps: int, stops_after: Callable[[int], bool] = never
) -> Interval:
    """Run and time `num_steps` optimiser steps on this rank, or fewer: `stops_after` hears how many were taken.

    Ranks start together, or the first step would time the slowest start-up. The device is drained at the edges of the
    interval only. The interval begins before the loader does: what an epoch costs includes starting its workers.

    Raises:
        RuntimeError: the loader delivers fewer batches, or more.
    """
    clock, marks = _clock_of(world), list[Any]()
    samples: list[int] = []
    losses: list[torch.Tensor] = []
    world.barrier()
    world.synchronize()
    started_s = time.perf_counter()
    marks.append(clock.now())
    delivered = iter(batches)
    for _ in range(num_steps):
        batch = next(delivered, None)
        if batch is None:
            raise RuntimeError(f"the loader delivered {len(samples)} batches, {num_steps} were expected")
        marks.append(clock.now())
        parts = step.parts(batch)
        for number, part in enumerate(parts, start=1):
            loss = step.forward(part, number == len(parts))
            marks.append(clock.now())
            step.backward(loss, number == len(parts))
            marks.append(clock.now())
            losses.append(loss.detach())
        step.update()
        marks.append(clock.now())
        samples.append(len(batch[1]))
        if stops_after(len(samples)):
            break
    complete = len(samples) == num_steps
    if complete and next(delivered, None) is not None:  # asking once more ends its workers inside the interval
        raise RuntimeError(f"the loader delivers more than the {num_steps} batches that were expected")
    world.synchronize()
    ended_s = time.perf_counter()
    differences_s = [clock.seconds(*pair) for pair in pairwise(marks)]
    return Interval(
        started_s=started_s,
        ended_s=ended_s,
        phase_times_s=_by_phase(differences_s, len(samples)),
        samples=samples,
        losses=torch.stack(losses).double().reshape(len(samples), -1).mean(dim=1).tolist(),
        marks_per_step=len(differences_s) // len(samples),
    )


def _by_phase(differences_s: list[float], num_steps: int) -> list[tuple[float, ...]]:
    """[step][phase]. A step's marks are data wait, then forward and backward of each part of the batch, then update."""
    width = len(differences_s) // num_steps
    rows = [differences_s[start : start + width] for start in range(0, len(differences_s), width)]
    return [(wait, sum(parts[0::2]), sum(parts[1::2]), update) for wait, *parts, update in rows]


def seconds() -> float:
    """Of the machine's monotonic clock, for what is no part of a training."""
    return time.monotonic()


class BucketClock:
    """Stamps a step's buckets where DDP's hook calls it, on whatever thread: an Observer of the exchange."""

    def __init__(self, world: World) -> None:
        self._clock = _clock_of(world)
        self.begin_step()

    def begin_step(self) -> None:
        self.ready_at: dict[int, Any] = {}
        self.exchanged_at: dict[int, Any] = {}

    def ready(self, bucket: int) -> None:
        self.ready_at[bucket] = self._clock.now()

    def exchanged(self, bucket: int) -> None:
        self.exchanged_at[bucket] = self._clock.now()


def stamp_steps(
    batches: Iterable[Batch], step: Step, world: World, buckets: BucketClock, lead_in: int, num_steps: int
) -> Stamps:
    """Run as many optimiser steps as there are batches; stamps of `num_steps` of them, which `lead_in` others precede.

    Ranks do not meet here: a control may run on some of them alone. The device is drained at the end.
    """
    clock = _clock_of(world)
    rows: list[tuple[Any, Any, Any, dict[int, Any], dict[int, Any], Any, Any]] = []
    world.synchronize()
    origin = ended = clock.now()
    for batch in batches:
        started, there = ended, clock.now()
        buckets.begin_step()
        parts = step.parts(batch)
        for number, part in enumerate(parts, start=1):
            loss = step.forward(part, number == len(parts))
            forwarded = clock.now()
            step.backward(loss, number == len(parts))
        backed = clock.now()
        step.update()
        ended = clock.now()
        rows.append((started, there, forwarded, buckets.ready_at, buckets.exchanged_at, backed, ended))
    world.synchronize()

    def since_origin(mark: Any) -> float:
        return round(clock.seconds(origin, mark), 7)  # 0.1 us: what a clock tells

    def of_buckets(index: int) -> list[list[float]]:
        return [[since_origin(mark) for _, mark in sorted(row[index].items())] for row in kept]

    kept = rows[lead_in : lead_in + num_steps]
    starts, theres, forwards, backwards, updates = (
        [since_origin(row[index]) for row in kept] for index in (0, 1, 2, 5, 6)
    )
    return Stamps(
        start_s=starts,
        batch_s=theres,
        forward_s=forwards,
        ready_s=of_buckets(3),
        exchanged_s=of_buckets(4),
        backward_s=backwards,
        update_s=updates,
    )


def time_call(function: Callable[[], Result], world: World) -> tuple[Result, tuple[float, float]]:
    """The result of `function`, which all ranks call together, and when it started and ended on this rank, in s."""
    world.barrier()
    world.synchronize()
    started_s = time.perf_counter()
    result = function()
    world.synchronize()
    return result, (started_s, time.perf_counter())


class Laps:
    """The parts of the start-up one after another: each lasts from the end of the one before, so they add up."""

    def __init__(self) -> None:
        """Begin when the launcher was started, where it said so."""
        launched_ns = os.environ.get(LAUNCHED)
        self.times_s: dict[str, float] = {}
        self._last_s: float | None = None
        if launched_ns is not None:  # of another process, maybe on another machine: only their calendar is one
            self._last_s = time.perf_counter() - max(0, time.time_ns() - int(launched_ns)) / 1e9

    def end(self, name: str) -> None:
        """A part ends here. The first is left out where nobody said when it began."""
        now_s = time.perf_counter()
        if self._last_s is not None:
            self.times_s[name] = now_s - self._last_s
        self._last_s = now_s


def as_columns(interval: Interval) -> dict[str, list[Any]]:
    """The interval's steps, a list per column: PHASE_COLUMNS, samples, loss."""
    times = {name: [row[index] for row in interval.phase_times_s] for index, name in enumerate(PHASE_COLUMNS)}
    return {**times, "samples": interval.samples, "loss": interval.losses}
