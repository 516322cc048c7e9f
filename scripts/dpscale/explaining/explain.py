"""Why a step on N ranks takes longer than on one: after the training, the same steps under controls, in the same launch.

Blocks of steps alternate in a seeded random order, the same on all ranks: one rank alone without DDP, alone under a DDP
that exchanges nothing, all ranks under the same, all ranks in full, and in full on a batch that stays on the device. So
nodes, clocks, neighbours and the batch per device are the same for all. causes.py makes causes of their stamps.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any, cast

import torch

from dpscale import measure
from dpscale.explaining.stamps import ALONE, CONTROLS, FULL, PLAIN, RESIDENT, Block, Explained, Stamps, Use
from dpscale.monitoring.monitor import CpuUsage
from dpscale.strategies.observed import Switch
from dpscale.training import Training
from dpscale.trial import Trial
from dpscale.workloads.loading import PREFETCH_FACTOR, TrainingStream
from dpscale.world import World

ROUNDS = 10  # of all controls; a 95 % interval of a median asks for 6
STEPS = 6  # of one block, on each rank: few, so that a drift of the machine touches all controls of a round alike
LEAST_ALONE = 2  # of them, where the ranks of a node take turns
SHOULDER = 2  # steps before, until ranks and caches are in step; and after, while slower ranks end theirs


def explain(
    trial: Trial, training: Training, stream: TrainingStream, world: World, node_cpus: Collection[int]
) -> Explained:
    """This rank's blocks, and what was used for them of these CPUs, which any of its node's ranks may run on."""
    usage = CpuUsage(node_cpus)
    with usage.counted(True):
        explained, window_s = measure.time_call(lambda: _explain(trial, training, stream, world), world)
    use = Use(rank=world.rank, window_s=window_s, cpu_time_s=usage.rank_s, machine_cpu_time_s=usage.machine_s)
    return replace(explained, uses=[use])


def _explain(trial: Trial, training: Training, stream: TrainingStream, world: World) -> Explained:
    """The training ends as it was: weights, buffers, optimiser, random numbers."""
    devices = [world.device.index] if world.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        laboratory = _Laboratory(trial, training, stream, world)
        laboratory.run(FULL, LEAST_ALONE)  # DDP arranges its buckets anew after a first step
        laboratory.switch.bucket_bytes.clear()
        blocks = []
        order = random.Random(trial.seed)
        for number in range(ROUNDS):
            for control in order.sample(CONTROLS, len(CONTROLS)):
                stamps = laboratory.run(control, STEPS)
                blocks.append(Block(round=number, control=control, rank=world.rank, stamps=stamps))
        laboratory.restore()
    switch = laboratory.switch
    bucket_bytes = [nbytes for _, nbytes in sorted(switch.bucket_bytes.items())]
    return Explained(broadcasts_buffers=switch.broadcasts_buffers, bucket_bytes=bucket_bytes, blocks=blocks, uses=[])


class _Laboratory:
    """The training under any control."""

    def __init__(self, trial: Trial, training: Training, stream: TrainingStream, world: World) -> None:
        self.trial, self.training, self.stream, self.world = trial, training, stream, world
        training.learning_rates = None  # the last one stays
        self.saved = [(tensor, tensor.clone()) for tensor in _state_of(training)]
        self.buckets = measure.BucketClock(world)
        self.switch: Switch = cast("Any", training.replica).observe(self.buckets)
        compiled = torch.compile if trial.compile else lambda model: model
        self.wrapped, self.plain = compiled(training.replica.model), compiled(training.plain_model)
        (self.batch,) = stream.batches(0, 1)

    def run(self, control: str, steps: int) -> Stamps:
        """One block of a control, from the weights that the training ended with."""
        self.restore()
        self.training.model = self.plain if control == PLAIN else self.wrapped
        self.switch.exchange(control in (FULL, RESIDENT))
        if control not in ALONE:
            self.world.barrier()
            return self._steps(control, steps)
        ranks = self.trial.ranks_per_node
        for turn in range(ranks):
            self.world.barrier()
            if turn == self.world.local_rank:
                stamps = self._steps(control, max(LEAST_ALONE, math.ceil(steps / ranks)))
        return stamps

    def _steps(self, control: str, steps: int) -> Stamps:
        # a loader's workers begin with a store of batches: what they keep up with shows when that is used up
        lead_in = SHOULDER + PREFETCH_FACTOR * self.trial.loader_workers
        count = lead_in + steps + SHOULDER * (control not in ALONE)
        batches = repeat(self.batch, count) if control == RESIDENT else self.stream.batches(0, count)
        return measure.stamp_steps(batches, self.training, self.world, self.buckets, lead_in, steps)

    def restore(self) -> None:
        """Each block begins with the same weights on all ranks, whatever the one before made of them.

        In place: after state that has moved in memory the first steps would be others than the next.
        """
        with torch.no_grad():
            for tensor, content in self.saved:
                tensor.copy_(content)


def _state_of(training: Training) -> Iterator[torch.Tensor]:
    """Every tensor that a step changes: of the model, and of this rank's optimiser."""
    yield from training.plain_model.state_dict().values()
    for state in training.replica.optimizer_state.values():
        yield from (value for value in state.values() if torch.is_tensor(value))
