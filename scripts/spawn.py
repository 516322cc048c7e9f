"""Start this node's ranks with torch.multiprocessing, watch them, end all when one fails.

On Linux they are forked from this process, which has loaded what they need (imports are paid once, not once per rank,
nor a second time in a fork server), runs nothing else and never touches a device; elsewhere each is a fresh interpreter.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from dpscale.launching.attempt import STOP_SIGNALS, write_exit
from dpscale.launching.slurm import node_rank_of_this_step
from dpscale.launching.tasks import main_of


def start_rank(local_rank: int, command: list[str], environment: dict[str, str]) -> None:
    """Become one rank: the launch environment, then the script's main."""
    rank = int(environment["GROUP_RANK"]) * int(environment["LOCAL_WORLD_SIZE"]) + local_rank
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(local_rank))
    script, *argv = command
    main_of(script)(argv)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--nnodes", "--nproc-per-node", "--master-port"):
        parser.add_argument(flag, type=int, required=True)
    parser.add_argument("--node-rank", type=int, help="in a job step it is SLURM_NODEID")
    parser.add_argument("--master-addr", required=True)
    parser.add_argument("command", nargs="+", help="train.py or another script of ranks, and its arguments")
    args = parser.parse_args()
    node_rank = node_rank_of_this_step() if args.node_rank is None else args.node_rank
    environment = {
        "GROUP_RANK": str(node_rank),
        "WORLD_SIZE": str(args.nnodes * args.nproc_per_node),
        "LOCAL_WORLD_SIZE": str(args.nproc_per_node),
        "MASTER_ADDR": args.master_addr,
        "MASTER_PORT": str(args.master_port),
    }
    if any(argument.startswith("--checkpoints=") for argument in args.command):
        for number in STOP_SIGNALS:  # for the ranks, which save themselves and end: what started this sees to that
            signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        load_what_ranks_need(args.command[0])
    from torch.multiprocessing.spawn import start_processes

    ranks = start_processes(
        start_rank,
        args=(args.command, environment),
        nprocs=args.nproc_per_node,
        join=False,
        start_method="fork" if sys.platform == "linux" else "spawn",
    ).processes
    failed = first_failure(ranks)
    if failed is None:
        return 0
    for process in ranks:
        process.kill()
    write_exit(Path(os.environ["DPSCALE_DRAFTS"]), node_rank * args.nproc_per_node + failed, ranks[failed].exitcode)
    return 1


def first_failure(ranks: list[BaseProcess]) -> int | None:
    """Wait until one of these processes fails, and return its index; None when all have ended well.

    One that a signal ended comes before those that only lost their connection to it, in the same moment.
    """
    while True:
        ended = [process.exitcode for process in ranks]  # asked once a round: one that ends between two would be missed
        if any(ended):
            time.sleep(0.1)
            break
        if None not in ended:
            break
        wait([process.sentinel for process, code in zip(ranks, ended, strict=True) if code is None])
    return min(
        (index for index, process in enumerate(ranks) if process.exitcode),
        key=lambda index: ranks[index].exitcode or 0,
        default=None,
    )


def load_what_ranks_need(script: str) -> None:
    """Neither module starts a thread or asks for a device, so that forking after them is safe.

    The first optimiser and DDP import torch._dynamo: it would take each rank seconds, and all at once.
    """
    import torch._dynamo  # noqa: F401

    main_of(script)


if __name__ == "__main__":
    sys.exit(main())
