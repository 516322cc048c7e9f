"""Time one launcher and topology's collectives: start ranks, watch them, and commit the result when all ended well.

This is what the `time_collectives` rule runs; started by hand, it measures the same in the same way.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dpscale.code import SCRIPTS, collectives_code
from dpscale.collectives.run import FILE, TIMES, Result, Run, write_unavailable
from dpscale.launching import attempt, launches
from dpscale.launching.again import rerun_command
from dpscale.launching.history import FOLDER, History, identity_of
from dpscale.launching.placement import ByHand


def measure(run: Run, args: argparse.Namespace, log: launches.Log) -> str:
    """One run, measured into `folder`; returns a line that says how it went.

    Raises:
        UserError: it failed; the text names the first failing rank and its error or signal.
    """
    attempt.adopt_orphans()
    folder, job = args.folder.absolute(), launches.job_of(run)
    by_hand = launches.by_hand_of(args)
    first_node = by_hand is None or by_hand.node_rank == 0
    with attempt.locked(folder if first_node else folder / f".node{args.node_rank}") as drafts:
        launch: dict[str, Any] = {
            "command": [sys.executable, *sys.argv],
            "rerun": again(run, args),
            "started_at": datetime.now(timezone.utc).isoformat(),
            "code": collectives_code(run.launcher),
            "slurm": job,
        }
        history = History(folder / FOLDER, identity_of(run, launch["code"]))
        with launches.attempted(history, log) if first_node else nullcontext():
            if reason := launches.missing_program(run):
                write_unavailable(run, reason, drafts)
            else:
                start_ranks(run, by_hand, job, drafts, log)
        if not first_node:
            return "ok: node 0 has the result"
        draft = Result.read(drafts / FILE)
        launch |= {"ended_at": datetime.now(timezone.utc).isoformat(), "attempts": history.attempts}
        commit(draft, launch, drafts, folder)
        history.clear()
        log.end_last_attempt()
    return "ok" if draft.status == "ok" else f"{draft.status}: {draft.reason}"


def start_ranks(run: Run, by_hand: ByHand | None, job: dict[str, Any] | None, drafts: Path, log: launches.Log) -> None:
    """Raises UserError: they failed."""
    command = [str(SCRIPTS / "time_collectives.py"), f"--out={drafts}", *run.to_args()]

    def start(argv: list[str]) -> int:
        return launches.run_ranks(argv, launches.environment_for(run, drafts), run.timeout_s, drafts, log)

    launches.run_attempts(run, by_hand, job, drafts, command, (str(drafts),), start, log)


def again(run: Run, args: argparse.Namespace) -> str:
    """The command that times this run's collectives again."""
    network = None if run.network is None else str(Path(run.network).absolute())
    arguments = replace(run, network=network).to_args()
    return rerun_command(SCRIPTS / "launch_collectives.py", args, "run.log", arguments, {})


def commit(draft: Result, launch: dict[str, Any], drafts: Path, folder: Path) -> None:
    """Complete the draft with what only this process knows, and put both files under their final names."""
    environment = launches.with_code(draft.environment, "time_collectives.py")
    (drafts / TIMES).rename(folder / TIMES)
    replace(draft, launch=launch, environment=environment).write(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    launches.add_arguments(parser)
    Run.add_arguments(parser)
    args = parser.parse_args()
    run = Run.from_args(args)
    log = launches.Log(args.log)
    return launches.to_its_end(run.id, lambda: measure(run, args, log), args, log)


if __name__ == "__main__":
    sys.exit(main())
