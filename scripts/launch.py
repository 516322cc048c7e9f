"""Measure one trial: start its ranks with its launcher, watch them, and commit the record when all ended well.

This is what the `trial` rule runs; started by hand, it measures the same trial in the same way.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dpscale import own
from dpscale.code import SCRIPTS, trial_code
from dpscale.environment import describe_machine
from dpscale.largest import with_its_batch
from dpscale.launching import attempt, launches, slurm
from dpscale.launching.again import rerun_command
from dpscale.launching.history import FOLDER, History, identity_of
from dpscale.record import MONITOR, RECORD, STEPS, Record
from dpscale.trial import Trial


def environment_for(trial: Trial, drafts: Path) -> dict[str, str]:
    """The ranks' environment."""
    environment = launches.environment_for(trial, drafts)
    if trial.compile:  # each launch compiles anew, or the second would find what the first has left
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(drafts / "inductor")
    return environment


def staging_folder(job: dict[str, Any] | None) -> str | None:
    """Where ranks copy their dataset to first: inside a job, if the cluster's settings ask for it."""
    folder = None if job is None else slurm.cluster_settings().staging_dir
    return None if folder is None else os.path.expandvars(folder)


def run_attempts(
    trial: Trial,
    args: argparse.Namespace,
    job: dict[str, Any] | None,
    history: History,
    drafts: Path,
    log: launches.Log,
) -> int:
    """Start the trial's ranks until they end well; returns the number of attempts.

    Raises:
        UserError: they failed, by something else than a port that somebody took.
    """
    data = args.data.absolute()
    stage_to = staging_folder(job)
    staging = [] if stage_to is None else [f"--stage-to={stage_to}"]
    train = [
        str(SCRIPTS / "train.py"),
        f"--data={data}",
        f"--out={drafts}",
        *staging,
        *history.arguments(trial),
        *trial.to_args(),
    ]
    folders = own.search_folders() if own.is_own(trial.model) else []
    seen_in_container = tuple(str(path) for path in (data, drafts, stage_to, *folders) if path is not None)

    def run(argv: list[str]) -> int:
        return launches.run_ranks(argv, environment_for(trial, drafts), trial.timeout_s, drafts, log)

    by_hand = launches.by_hand_of(args)
    return launches.run_attempts(trial, by_hand, job, drafts, train, seen_in_container, run, log)


def measure(trial: Trial, args: argparse.Namespace, log: launches.Log) -> str:
    """One trial, measured into `folder`; returns a line that says how it went.

    Raises:
        UserError: it failed (OutOfMemory: as a device's memory did not suffice); the text names the first failing rank and its error or signal.
    """
    attempt.adopt_orphans()
    trial, search = with_its_batch(trial, args.largest)
    folder = args.folder.absolute()
    job = launches.job_of(trial)
    first_node = args.node_rank in (None, 0)  # of several machines by hand, the one that commits
    # the other machines' own folder: node 0's lock and drafts may lie on the same file system
    with attempt.locked(folder if first_node else folder / f".node{args.node_rank}") as drafts:
        code = trial_code(trial.base, trial.model, trial.launcher)  # refuses a model of one's own that is not there
        started = datetime.now(timezone.utc)
        attempts = 0
        history = History(folder / FOLDER, identity_of(trial, code, manifest_in(args.data)))
        with launches.attempted(history, log) if first_node else nullcontext():
            if reason := launches.missing_program(trial):
                Record.write_unavailable(trial, reason, describe_machine("cpu"), drafts)
            else:
                attempts = run_attempts(trial, args, job, history, drafts, log)
        if not first_node:
            return "ok: node 0 has the record"
        launch = {
            "command": [sys.executable, *sys.argv],
            "rerun": again(trial, args),
            "started_at": started.isoformat(),
            "ended_at": datetime.now(timezone.utc).isoformat(),
            "port_attempts": attempts,
            "code": code,
            "slurm": job,
            "largest_batch": search,
            "attempts": history.attempts,
        }
        outcome = commit(Record.read(drafts / RECORD), launch, drafts, folder)
        history.clear()
        log.end_last_attempt()
        return outcome


def manifest_in(data: Path) -> str:
    """What a prepared dataset says of itself; nothing where it is not to be seen from here."""
    manifest = data / "manifest.json"
    return manifest.read_text() if manifest.exists() else ""


def again(trial: Trial, args: argparse.Namespace) -> str:
    """The command that measures this trial again."""
    variables = {}
    if own.is_own(trial.model):
        variables[own.FOLDERS] = os.pathsep.join(str(folder.absolute()) for folder in own.search_folders())
    arguments = [f"--data={args.data.absolute()}", *trial.to_args()]
    return rerun_command(SCRIPTS / "launch.py", args, "trial.log", arguments, variables)


def commit(draft: Record, launch: dict, drafts: Path, folder: Path) -> str:
    """Complete the draft with what only this process knows, and put all its files under their final names."""
    environment = launches.with_code(draft.environment, "train.py")
    for name in (STEPS, MONITOR):
        (drafts / name).rename(folder / name)
    replace(draft, launch=launch, environment=environment).write(folder)
    if draft.status != "ok":
        return f"{draft.status}: {draft.reason}"
    if draft.oversubscribed:
        return (
            f"oversubscribed: {draft.trial.ranks_per_node} ranks x {draft.trial.threads_per_rank} threads on "
            f"{draft.environment['usable_cpus']} usable CPUs"
        )
    return "ok"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--largest", type=Path, help="largest.json of the search for this trial's batch")
    launches.add_arguments(parser)
    Trial.add_arguments(parser)
    args = parser.parse_args()
    trial = Trial.from_args(args)
    log = launches.Log(args.log)
    return launches.to_its_end(trial.id, lambda: measure(trial, args, log), args, log)


if __name__ == "__main__":
    sys.exit(main())
