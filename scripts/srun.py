"""One task of srun becomes one rank: SLURM's variables are turned into the launch environment, then it runs its script."""

from __future__ import annotations

import argparse
import os

from dpscale.launching.tasks import main_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master-addr", required=True)
    parser.add_argument("--master-port", required=True)
    parser.add_argument("command", nargs="+", help="train.py or another script of ranks, and its arguments")
    args = parser.parse_args()
    step = os.environ
    step.update(
        RANK=step["SLURM_PROCID"],
        LOCAL_RANK=step["SLURM_LOCALID"],
        WORLD_SIZE=step["SLURM_STEP_NUM_TASKS"],
        LOCAL_WORLD_SIZE=str(int(step["SLURM_STEP_NUM_TASKS"]) // int(step["SLURM_STEP_NUM_NODES"])),
        GROUP_RANK=step["SLURM_NODEID"],
        MASTER_ADDR=args.master_addr,
        MASTER_PORT=args.master_port,
    )
    script, *argv = args.command
    main_of(script)(argv)


if __name__ == "__main__":
    main()
