"""What it costs to look: the monitor at its default rate, as a share of a core, and the clock's marks, of a step of 100 ms."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import psutil
import torch
from common import Comparison, Settings, plan_one

from dpscale import measure
from dpscale.monitoring.monitor import affinity
from dpscale.monitoring.sampling import Watch
from dpscale.workloads.loading import Batch
from dpscale.world import World

ONE_RANK = World(rank=0, local_rank=0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))
STEP_S = 0.1
RANKS = 8  # that a monitor watches: as many as a node with many devices has
WATCHED_S = 10.0  # at the default rate these are 20 rounds
STEPS_PER_PAIR = 4  # alternated within one pair


def run(settings: Settings) -> Iterator[Comparison]:
    yield monitors_cost(settings)
    yield phases_cost(settings)


def monitors_cost(settings: Settings) -> Comparison:
    """CPU time that the monitor takes from its first round to its last, over that time."""
    trial = plan_one(strategies={"single": {}}, topologies=["1x1"], batch={"per_device": 32}, epochs=2)
    assert trial.monitor_interval_s is not None
    seconds = WATCHED_S if settings.pairs > 1 else 4 * trial.monitor_interval_s
    pairs = []
    for _ in range(settings.pairs):
        watch = Watch(
            {rank: os.getpid() for rank in range(RANKS)}, [], affinity(), trial.monitor_interval_s, workers=False
        )
        time.sleep(seconds)
        used = [reading for reading in watch.end().readings if reading["kind"] == "monitor"]
        pairs.append((used[-1]["cpu_time_s"] - used[0]["cpu_time_s"], used[-1]["time_s"] - used[0]["time_s"]))
    return Comparison(
        name="the monitor's CPU time / time, at the default rate",
        first="CPU time from its first round to its last, s",
        second="time between these, s",
        pairs=pairs,
        goal=0.01,
        goal_is="at most",
        facts={"ranks": RANKS, "interval_s": trial.monitor_interval_s, "gpus": 0, "processes": len(psutil.pids())},
    )


class Step:
    """A step of matrix products, a third of them in each phase."""

    def __init__(self) -> None:
        self.matrix = torch.rand(128, 128)
        self.products = 1
        while (taken_s := self._seconds()) < STEP_S / 3:
            self.products = max(self.products + 1, int(self.products * min(4.0, STEP_S / 3 / taken_s)))

    def _seconds(self) -> float:
        started_s = time.perf_counter()
        self._work()
        return time.perf_counter() - started_s

    def _work(self) -> None:
        for _ in range(self.products):
            torch.mm(self.matrix, self.matrix)

    def parts(self, batch: Batch) -> list[Batch]:
        return [batch]

    def forward(self, part: Batch, last: bool) -> torch.Tensor:
        self._work()
        return torch.tensor(0.0)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        self._work()

    def update(self) -> None:
        self._work()


def phases_cost(settings: Settings) -> Comparison:
    """The same steps with the clock between their phases and without, alternated one by one in this process; by its CPU
    time, which other processes stretch less."""
    torch.set_num_threads(1)
    step, batch = Step(), (torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64))
    pairs = []
    for _ in range(settings.pairs * (STEPS_PER_PAIR if settings.pairs > 1 else 1)):
        started_s = time.process_time()
        measure.time_steps([batch], step, ONE_RANK, 1)
        between_s = time.process_time()
        for part in step.parts(batch):
            loss = step.forward(part, True)
            step.backward(loss, True)
            step.update()
            loss.item()
        pairs.append((between_s - started_s, time.process_time() - between_s))
    return Comparison(
        name="a step of 100 ms with phases / without",
        first="CPU time of a step by measure.time_steps, s",
        second="of the same calls without a clock, s",
        pairs=pairs,
        goal=1.02,
        goal_is="at most",
        facts={"marks_cost_s": measure.cost_of_a_mark_s(ONE_RANK), "products_per_phase": step.products},
    )
