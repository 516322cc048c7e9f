"""What rows of STRATEGIES cost beyond the library call behind them, and what DDP's buckets and overlap are worth.

Two sides alternate in the same ranks, from the same initial weights and on the same batches in memory. Rows that are
written out by hand (ring, parameter_server) have no library call to be compared with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import Comparison, Settings, plan_one, prepare
from loop import PAIRS_PER_PAIR, joined, throughputs_of
from torch import nn, optim
from torch.multiprocessing.spawn import start_processes
from torch.nn.functional import nll_loss
from torch.nn.parallel import DistributedDataParallel

from dpscale import measure
from dpscale.launching.attempt import free_port
from dpscale.training import Training, build_model
from dpscale.trial import Trial
from dpscale.workloads.loading import Batch, TrainingStream
from dpscale.workloads.samples import Samples
from dpscale.world import World

RANKS = 2
LEAST_OF_LIBRARY = 0.95
LEAST_OF_ALLREDUCE = 0.95
Step = Callable[[Batch], None]


def run(settings: Settings) -> Iterator[Comparison]:
    digits = prepare("digits", settings.folder)
    for strategy in BARE:
        trial = planned({strategy: {}}, batch={"per_device": 32}, steps=settings.steps + 1)
        yield compared(
            settings,
            digits,
            (trial, None),
            (trial, strategy),
            name=f"{strategy}, 2 ranks: our row / the bare library call, throughput",
            goal=LEAST_OF_LIBRARY,
        )
    yield ddp_against_allreduce(settings)


def ddp_against_allreduce(settings: Settings) -> Comparison:
    shape = {"sample_shape": [3, 32, 32], "train_samples": 1024, "test_samples": 64}
    data = prepare("synthetic", settings.folder, **shape)
    workload = {"model": "resnet18", "model_options": {"stem": "cifar"}, "dataset": "synthetic"}
    steps = max(2, settings.steps // 10)
    ddp, allreduce = (
        planned(
            {strategy: {}},
            datasets={"synthetic": shape},
            workload={**workload, "optimizer": {"name": "sgd", "lr": 0.01}},
            batch={"per_device": 8},
            steps=steps + 1,
        )
        for strategy in ("ddp", "allreduce")
    )
    return compared(
        settings,
        data,
        (ddp, None),
        (allreduce, None),
        steps=steps,
        name="ResNet-18 at 32x32, 2 ranks: ddp / allreduce, throughput",
        goal=LEAST_OF_ALLREDUCE,
    )


def planned(strategies: dict[str, Any], ranks: int = RANKS, **experiment: Any) -> Trial:
    return plan_one(strategies=strategies, topologies=[f"1x{ranks}"], warmup_steps=1, evaluate=False, **experiment)


Side = tuple[Trial, str | None]  # a trial, and which of BARE stands for its training; None = our own


def compared(
    settings: Settings, data: Path, first: Side, second: Side, *, name: str, goal: float, steps: int | None = None
) -> Comparison:
    """Throughputs of two sides, alternated in the same ranks."""
    pairs = settings.pairs * PAIRS_PER_PAIR if settings.pairs > 1 else 1
    out = settings.folder / "throughputs.json"
    steps = steps or settings.steps
    start_processes(
        rank_main,
        args=(first, second, data, out, pairs, steps, free_port()),
        nprocs=first[0].world_size,
        start_method="spawn",
    )
    return Comparison(
        name=name,
        first=f"{first[0].strategy}{' bare' if first[1] else ''}, samples/s",
        second=f"{second[0].strategy}{' bare' if second[1] else ''}, samples/s",
        pairs=[tuple(pair) for pair in json.loads(out.read_text())],
        goal=goal,
        goal_is="at least",
        facts={"first": first[0].to_args(), "second": second[0].to_args(), "steps_per_side": steps},
    )


def rank_main(rank: int, first: Side, second: Side, data: Path, out: Path, pairs: int, steps: int, port: int) -> None:
    """One rank: alternate both sides, and let rank 0 write the throughputs of all ranks together."""
    torch.set_num_threads(first[0].threads_per_rank)
    with joined(first[0], rank, port) as world:
        stream = TrainingStream(first[0], data, world.rank, world.device)
        batches = list(stream.batches(0, min(steps, stream.steps_per_epoch)))
        given = [batches[step % len(batches)] for step in range(steps)]
        sides = [runner(side, given, stream.samples, world) for side in (first, second)]
        throughputs = []
        for pair in range(-1, pairs):  # the first pair warms both up
            windows = world.gather([moment for run_side in sides for moment in run_side()])
            if windows is not None and pair >= 0:
                throughputs.append(throughputs_of(windows, steps * first[0].global_batch_size))
        if rank == 0:
            out.write_text(json.dumps(throughputs))


def runner(side: Side, batches: list[Batch], samples: Samples, world: World) -> Callable[[], tuple[float, float]]:
    """A function that trains on the batches and returns when it began and ended on this rank."""
    trial, bare = side
    if bare is None:
        training = Training(trial, samples, world, len(batches))

        def ours() -> tuple[float, float]:
            interval = measure.time_steps(iter(batches), training, world, len(batches))
            return interval.started_s, interval.ended_s

        return ours
    step = BARE[bare](build_model(trial, samples, world), trial, world)

    def bare_steps() -> tuple[float, float]:
        world.barrier()
        started_s = time.perf_counter()
        for batch in batches:
            step(batch)
        return started_s, time.perf_counter()

    return bare_steps


# What one would write by hand around each library call, and nothing more.


def plain_step(model: nn.Module, optimizer: optim.Optimizer) -> Step:
    def step(batch: Batch) -> None:
        images, labels = batch
        optimizer.zero_grad()
        nll_loss(model(images), labels).backward()
        optimizer.step()

    return step


def bare_ddp(model: nn.Module, trial: Trial, world: World) -> Step:
    wrapped = DistributedDataParallel(model)
    return plain_step(wrapped, optim.Adadelta(wrapped.parameters(), lr=trial.optimizer["lr"]))


def bare_allreduce(model: nn.Module, trial: Trial, world: World) -> Step:
    optimizer = optim.Adadelta(model.parameters(), lr=trial.optimizer["lr"])

    def step(batch: Batch) -> None:
        images, labels = batch
        optimizer.zero_grad()
        nll_loss(model(images), labels).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()

    return step


def bare_zero(model: nn.Module, trial: Trial, world: World) -> Step:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    wrapped = DistributedDataParallel(model)
    return plain_step(
        wrapped,
        ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_class=optim.Adadelta, lr=trial.optimizer["lr"]),
    )


def bare_local_sgd(model: nn.Module, trial: Trial, world: World) -> Step:
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    wrapped = DistributedDataParallel(model)
    alone = [dist.new_group([rank]) for rank in range(world.size)][world.rank]
    state = PostLocalSGDState(None, alone, start_localSGD_iter=0, post_local_gradient_allreduce=False)
    wrapped.register_comm_hook(state, post_localSGD_hook)
    inner = optim.Adadelta(wrapped.parameters(), lr=trial.optimizer["lr"])
    return plain_step(wrapped, PostLocalSGDOptimizer(inner, PeriodicModelAverager(period=4, warmup_steps=0)))


def bare_fsdp(model: nn.Module, trial: Trial, world: World) -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world.size,))
    for child in model.children():
        if any(True for _ in child.parameters()):
            fully_shard(child, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return plain_step(model, optim.Adadelta(model.parameters(), lr=trial.optimizer["lr"]))


BARE: dict[str, Callable[[nn.Module, Trial, World], Step]] = {
    "ddp": bare_ddp,
    "allreduce": bare_allreduce,
    "zero": bare_zero,
    "local_sgd": bare_local_sgd,
    "fsdp": bare_fsdp,
}
