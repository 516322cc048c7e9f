"""One task of a launcher that knows nothing of us becomes one rank: its place from the launcher's own variables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from dpscale.attempt import watch_rank, write_failure
from dpscale.errors import UserError


def become_rank(launcher: str, names: Mapping[str, str], train: Callable[[list[str]], None]) -> int:
    """Run `train` as the rank that this task is, and return the exit code of the task.

    Args:
        names: variable of the launch environment -> the launcher's; without GROUP_RANK, ranks are placed node by node.
    """
    parser = argparse.ArgumentParser(description=f"One task of {launcher} becomes one rank.")
    parser.add_argument("--master-addr", required=True)
    parser.add_argument("--master-port", required=True)
    parser.add_argument("command", nargs="+", help="train.py and its arguments")
    args = parser.parse_args()
    drafts = Path(os.environ["DPSCALE_DRAFTS"])
    try:
        place = place_of_task(launcher, names, os.environ)
    except UserError as error:
        write_failure(drafts, error)
        print(error, file=sys.stderr)
        return 1
    os.environ.update(place, MASTER_ADDR=args.master_addr, MASTER_PORT=args.master_port)
    return watch_rank(lambda: train(args.command[1:]), drafts, int(place["RANK"]))


def place_of_task(launcher: str, names: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The launch environment but for the address.

    Raises:
        UserError: a variable is missing: this launcher did not start the task, or is another program of that name.
    """
    if missing := [name for name in names.values() if name not in variables]:
        raise UserError(
            f"{', '.join(missing)} not set: only {launcher} starts this, through scripts/launch.py; another program of that "
            "name does not do"
        )
    place = {ours: variables[theirs] for ours, theirs in names.items()}
    return {"GROUP_RANK": str(int(place["RANK"]) // int(place["LOCAL_WORLD_SIZE"])), **place}
