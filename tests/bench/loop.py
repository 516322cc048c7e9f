"""Our measured loop against a bare hand-written one: same weights, batches, optimiser, threads, and the same launch.

Ours is what a trial runs: Training steps, time_steps stands between the phases. Both pick the same samples from the
same normalised images in memory; what the data path costs is the textbook bench's to compare.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from common import Comparison, Settings, plan_one, prepare
from torch import nn, optim
from torch.multiprocessing.spawn import start_processes
from torch.nn.functional import nll_loss
from torch.nn.parallel import DistributedDataParallel

from dpscale import measure
from dpscale.launching.attempt import free_port
from dpscale.training import Training, build_model
from dpscale.trial import Trial
from dpscale.workloads.loading import Batch, TrainingStream, training_indices
from dpscale.world import World, process_group

GOAL = 0.97
BATCH_SIZE = 32  # config.yaml's: the smaller the batch, the more an overhead of each step shows
PAIRS_PER_PAIR = 4  # short sides cost little and follow each other closely, so that other load hits both alike


def run(settings: Settings) -> Iterator[Comparison]:
    data = prepare("digits", settings.folder)
    pairs = settings.pairs * PAIRS_PER_PAIR if settings.pairs > 1 else 1
    for ranks, strategy in ((1, "single"), (2, "ddp")):
        trial = plan_one(
            strategies={strategy: {}},
            topologies=[f"1x{ranks}"],
            batch={"per_device": BATCH_SIZE},
            steps=settings.steps + 1,
            warmup_steps=1,
            evaluate=False,
        )
        out = settings.folder / f"loop-{ranks}.json"
        start_processes(
            rank_main, args=(trial, data, out, pairs, settings.steps, free_port()), nprocs=ranks, start_method="spawn"
        )
        yield Comparison(
            name=f"our loop / bare loop, throughput, {ranks} rank{'s' * (ranks > 1)}",
            first="our measured loop, samples/s",
            second="bare loop, samples/s",
            pairs=[(first, second) for first, second in json.loads(out.read_text())],
            goal=GOAL,
            goal_is="at least",
            facts={
                "trial": trial.id,
                "model": trial.model,
                "dataset": trial.dataset,
                "batch_size_per_rank": BATCH_SIZE,
                "steps_per_side": settings.steps,
                "threads_per_rank": trial.threads_per_rank,
                "data": "both pick from the same normalised float32 images",
            },
        )


def rank_main(rank: int, trial: Trial, data: Path, out: Path, pairs: int, steps: int, port: int) -> None:
    """One rank: alternate both loops in one process, and let rank 0 write the throughputs of all ranks together."""
    torch.set_num_threads(trial.threads_per_rank)
    with joined(trial, rank, port) as world:
        throughputs = alternate(trial, data, world, pairs, steps)
        if rank == 0:
            out.write_text(json.dumps(throughputs))


def alternate(trial: Trial, data: Path, world: World, pairs: int, steps: int) -> list[tuple[float, float]]:
    """(ours, bare) in samples/s, pair by pair, on rank 0; empty elsewhere. The models end here, before the group does."""
    stream = TrainingStream(trial, data, world.rank, world.device)
    ours, bare = Training(trial, stream.samples, world, stream.steps_per_epoch), BareLoop(trial, stream, world)
    throughputs = []
    for pair in range(-1, pairs):  # the first pair warms both up
        first_step = (pair + 1) * steps
        indices = bare.indices(first_step, steps)
        interval = measure.time_steps(bare.batches(indices), ours, world, steps)
        world.barrier()
        started_s = time.perf_counter()
        bare.run(indices)
        windows = world.gather((interval.started_s, interval.ended_s, started_s, time.perf_counter()))
        if windows is not None and pair >= 0:
            throughputs.append(throughputs_of(windows, steps * trial.global_batch_size))
    return throughputs


class BareLoop:
    """What one would write by hand, and nothing more."""

    def __init__(self, trial: Trial, stream: TrainingStream, world: World) -> None:
        self.trial, self.steps_per_epoch, self.world = trial, stream.steps_per_epoch, world
        everything = [np.arange(stream.loader.num_samples)]
        self.images, self.labels = next(iter(stream.loader.batches(everything)))
        model = build_model(trial, stream.samples, world)
        self.model: nn.Module = DistributedDataParallel(model) if world.size > 1 else model
        self.optimizer = optim.Adadelta(self.model.parameters(), lr=trial.optimizer["lr"])

    def indices(self, first_step: int, steps: int) -> list[torch.Tensor]:
        """The same samples as ours in these steps, step by step."""
        trial, rows = self.trial, list[torch.Tensor]()
        for step in range(first_step, first_step + steps):
            epoch, offset = divmod(step, self.steps_per_epoch)
            epoch_rows = training_indices(
                len(self.labels), trial.batch_size_per_rank, self.world.rank, self.world.size, trial.seed, epoch
            )
            rows.append(torch.from_numpy(epoch_rows[offset].copy()))
        return rows

    def batches(self, indices: list[torch.Tensor]) -> Iterator[Batch]:
        return ((self.images[chosen], self.labels[chosen]) for chosen in indices)

    def run(self, indices: list[torch.Tensor]) -> None:
        for chosen in indices:
            self.optimizer.zero_grad()
            loss = nll_loss(self.model(self.images[chosen]), self.labels[chosen])
            loss.backward()
            self.optimizer.step()


def throughputs_of(windows: list[tuple[float, float, float, float]], samples: int) -> tuple[float, float]:
    """(ours, bare) in samples/s: a step of all ranks ends when its last rank does."""
    our_starts, our_ends, bare_starts, bare_ends = zip(*windows, strict=True)
    return samples / (max(our_ends) - min(our_starts)), samples / (max(bare_ends) - min(bare_starts))


@contextmanager
def joined(trial: Trial, rank: int, port: int) -> Iterator[World]:
    """The trial's process group, joined as after a launcher."""
    size = str(trial.world_size)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, GROUP_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with process_group(trial) as world:
        yield world
