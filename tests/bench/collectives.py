"""Our times of a collective against a bare hand-written loop: an all-reduce of 64 MB on two ranks of one process group.

Both sides alternate in the same processes on the same backend; ours is what `snakemake collectives` runs, with buffers
filled before and values compared after each block, off the clock.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from common import Comparison, Settings
from torch.multiprocessing.spawn import start_processes

from dpscale.collectives.exchanges import exchange_of
from dpscale.collectives.operations import busbw_GB_per_s
from dpscale.collectives.run import Run
from dpscale.collectives.timing import time_block
from dpscale.launching.attempt import free_port
from dpscale.world import World, process_group

GOAL = 0.05  # share of the hand-written loop's
SIZE_BYTES, SMALLEST_BYTES = 64_000_000, 64_000
RANKS, CALLS = 2, 10
PAIRS_PER_PAIR = 2


def run(settings: Settings) -> Iterator[Comparison]:
    smallest = settings.pairs == 1
    size_bytes = SMALLEST_BYTES if smallest else SIZE_BYTES
    out = settings.folder / "collectives.json"
    pairs = 1 if smallest else settings.pairs * PAIRS_PER_PAIR
    start_processes(rank_main, args=(out, pairs, size_bytes, free_port()), nprocs=RANKS, start_method="spawn")
    measured = [(ours, bare) for ours, bare in json.loads(out.read_text())]
    shared = {"first": "ours, busbw in GB/s", "second": "hand-written loop, busbw in GB/s", "pairs": measured}
    facts = {"size_bytes": size_bytes, "ranks": RANKS, "calls_per_side": CALLS, "backend": "gloo"}
    name = "all-reduce of 64 MB, 2 ranks: our busbw / hand-written loop's"
    yield Comparison(name=name, goal=1 - GOAL, goal_is="at least", facts=facts, **shared)
    yield Comparison(name=f"{name}, no more", goal=1 + GOAL, goal_is="at most", facts=facts, **shared)


def rank_main(rank: int, out: Path, pairs: int, size_bytes: int, port: int) -> None:
    """One rank: alternate both, and let rank 0 write the bandwidths."""
    torch.set_num_threads(1)
    size = str(RANKS)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=size, LOCAL_WORLD_SIZE=size, GROUP_RANK="0")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    with process_group(a_run(size_bytes)) as world:
        exchange = exchange_of("all_reduce", size_bytes, "float32", world)
        bare = torch.ones(size_bytes // 4)
        found = []
        for pair in range(-1, pairs):  # the first pair warms both up
            # call by call, so that other load hits both alike
            both_s = [(time_block(exchange, world, calls=1)[0], bare_call_s(bare)) for _ in range(CALLS)]
            medians_s = [slowest_median_s(times_s, world) for times_s in zip(*both_s, strict=True)]
            if pair >= 0:
                found.append([busbw_GB_per_s("all_reduce", size_bytes, time_s, RANKS) for time_s in medians_s])
        if rank == 0:
            out.write_text(json.dumps(found))


def bare_call_s(buffer: torch.Tensor) -> float:
    """What one would write by hand."""
    buffer.fill_(1.0)
    dist.barrier()
    started_s = time.perf_counter()
    dist.all_reduce(buffer)
    return time.perf_counter() - started_s


def slowest_median_s(times_s: Sequence[float], world: World) -> float:
    """Median over calls of the slowest rank's time, on every rank."""
    times = torch.tensor(times_s, dtype=torch.float64)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.median().item()


def a_run(size_bytes: int) -> Run:
    return Run(
        experiment="bench",
        launcher="spawn",
        nodes=1,
        devices_per_node=RANKS,
        world_size=RANKS,
        device="cpu",
        backend="gloo",
        threads_per_rank=1,
        operations=["all_reduce"],
        dtypes=["float32"],
        sizes=[size_bytes],
        blocks=CALLS,
        seconds_per_size=60.0,
        timeout_s=600.0,
        collective_timeout_s=120.0,
    )
