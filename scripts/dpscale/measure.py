"""The only clock of a training step: every trial of every strategy is timed by `time_steps`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import torch

from dpscale.phases import PHASE_COLUMNS
from dpscale.workloads.loading import Batch
from dpscale.world import World

Result = TypeVar("Result")


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


class _CpuMarks:
    """Marks of the host's clock: on the CPU a call returns when its work is done."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def set(self) -> None:
        self.marks.append(time.perf_counter())

    def differences_s(self) -> list[float]:
        return [end - start for start, end in pairwise(self.marks)]


class _CudaMarks:
    """CUDA events in the stream: the host runs ahead, and draining the device at each mark would forbid overlap.

    What lies between two events is the device's time, its idle time included: a data wait is seen as far as it really
    holds up the device.
    """

    def __init__(self) -> None:
        self.marks: list[torch.cuda.Event] = []

    def set(self) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def differences_s(self) -> list[float]:
        return [start.elapsed_time(end) / 1000 for start, end in pairwise(self.marks)]


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
    marks = _CudaMarks() if world.device.type == "cuda" else _CpuMarks()
    samples: list[int] = []
    losses: list[torch.Tensor] = []
    world.barrier()
    world.synchronize()
    started_s = time.perf_counter()
    marks.set()
    delivered = iter(batches)
    for _ in range(num_steps):
        batch = next(delivered, None)
        if batch is None:
            raise RuntimeError(f"the loader delivered {len(samples)} batches, {num_steps} were expected")
        marks.set()
        parts = step.parts(batch)
        for number, part in enumerate(parts, start=1):
            loss = step.forward(part, number == len(parts))
            marks.set()
            step.backward(loss, number == len(parts))
            marks.set()
            losses.append(loss.detach())
        step.update()
        marks.set()
        samples.append(len(batch[1]))
        if stops_after(len(samples)):
            break
    complete = len(samples) == num_steps
    if complete and next(delivered, None) is not None:  # asking once more ends its workers inside the interval
        raise RuntimeError(f"the loader delivers more than the {num_steps} batches that were expected")
    world.synchronize()
    ended_s = time.perf_counter()
    return Interval(
        started_s=started_s,
        ended_s=ended_s,
        phase_times_s=_by_phase(marks.differences_s(), len(samples)),
        samples=samples,
        losses=torch.stack(losses).double().reshape(len(samples), -1).mean(dim=1).tolist(),
    )


def _by_phase(differences_s: list[float], num_steps: int) -> list[tuple[float, ...]]:
    """[step][phase]. A step's marks are data wait, then forward and backward of each part of the batch, then update."""
    width = len(differences_s) // num_steps
    rows = [differences_s[start : start + width] for start in range(0, len(differences_s), width)]
    return [(wait, sum(parts[0::2]), sum(parts[1::2]), update) for wait, *parts, update in rows]


def seconds() -> float:
    """Of the machine's monotonic clock, for what is no part of a training."""
    return time.monotonic()


def time_call(function: Callable[[], Result], world: World) -> tuple[Result, tuple[float, float]]:
    """The result of `function`, which all ranks call together, and when it started and ended on this rank, in s."""
    world.barrier()
    world.synchronize()
    started_s = time.perf_counter()
    result = function()
    world.synchronize()
    return result, (started_s, time.perf_counter())


def as_columns(interval: Interval) -> dict[str, list[Any]]:
    """The interval's steps, a list per column: PHASE_COLUMNS, samples, loss."""
    times = {name: [row[index] for row in interval.phase_times_s] for index, name in enumerate(PHASE_COLUMNS)}
    return {**times, "samples": interval.samples, "loss": interval.losses}
