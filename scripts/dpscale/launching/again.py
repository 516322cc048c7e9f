"""The command that measures a launch again, alone, outside Snakemake, and leaves its result as it is."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpscale.launching import slurm

FOLDER = "again"  # beside the result


def rerun_command(
    script: Path, args: argparse.Namespace, log: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> str:
    """One line for a shell that works from any folder; its result goes into `again`, beside this one. On several nodes it is
    to be typed where this one was: in such a job, or on each machine.

    Args:
        script: that was started with `args`, of which this repeats what says where (see `launches.add_arguments`).
        log: name of the log's file.
        arguments: what is measured.
        variables: of the environment, without which it would be another.
    """
    settings = json.loads(os.environ.get(slurm.SETTINGS, "{}"))
    settings.pop("prelude", None)  # it came before this process; and nobody knows what stands in it
    variables = {**({slurm.SETTINGS: json.dumps(settings)} if settings else {}), **variables}
    again = args.folder.absolute() / FOLDER
    by_hand = {"node-rank": args.node_rank, "master-addr": args.master_addr, "master-port": args.master_port}
    return shlex.join(
        [
            *("env", *(f"{name}={value}" for name, value in variables.items())),
            *(sys.executable, str(script), f"--folder={again}", f"--log={again / log}"),
            *(f"--{name}={value}" for name, value in by_hand.items() if value is not None),
            *arguments,
        ]
    )
