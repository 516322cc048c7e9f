"""How a process becomes a rank: the script that it runs, and its place where only the launcher's own variables say it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from dpscale.errors import UserError
from dpscale.launching.attempt import watch_rank, write_failure


def main_of(script: str) -> Callable[[list[str]], object]:
    """`main` of an entry point of ours that ranks run, as train.py. A rule's code names it, since no import does."""
    found: Callable[[list[str]], object] = importlib.import_module(Path(script).stem).main
    return found


def become_rank(launcher: str, names: Mapping[str, str]) -> int:
    """Run the script as the rank that this task is, and return the exit code of the task.

    Args:
        names: variable of the launch environment -> the launcher's; without GROUP_RANK, ranks are placed node by node.
    """
    parser = argparse.ArgumentParser(description=f"One task of {launcher} becomes one rank.")
    parser.add_argument("--master-addr", required=True)
    parser.add_argument("--master-port", required=True)
    parser.add_argument("command", nargs="+", help="train.py or another script of ranks, and its arguments")
    args = parser.parse_args()
    drafts = Path(os.environ["DPSCALE_DRAFTS"])
    try:
        place = place_of_task(launcher, names, os.environ)
    except UserError as error:
        write_failure(drafts, error)
        print(error, file=sys.stderr)
        return 1
    os.environ.update(place, MASTER_ADDR=args.master_addr, MASTER_PORT=args.master_port)
    script, *argv = args.command
    return watch_rank(lambda: main_of(script)(argv), drafts, int(place["RANK"]))


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
