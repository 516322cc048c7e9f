"""Measure one trial: start its ranks with its launcher, watch them, and commit the record when all ended well.

This is what the `trial` rule runs; started by hand, it measures the same trial in the same way.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from dpscale import attempt, own, slurm
from dpscale.code import SCRIPTS, digest_of, trial_code
from dpscale.environment import describe_machine, prefer_this_python
from dpscale.errors import UserError
from dpscale.largest import with_its_batch
from dpscale.launchers import CONTRACT, LAUNCHERS
from dpscale.phases import LAUNCHED
from dpscale.placement import ByHand, needs_a_job, place
from dpscale.record import MONITOR, RECORD, STEPS, Record
from dpscale.trial import Trial

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)
ATTEMPTS = 3  # a port can be taken between its choice and the bind


class Log:
    """The trial's log: lines of all ranks, each with the seconds since the start that this process saw it at.

    The file is begun with the first line: a launch that finds another one at work leaves that one's log alone.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._start_s = path, time.perf_counter()
        self._file: IO[str] | None = None

    def write(self, line: str) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w")
        self._file.write(f"[{time.perf_counter() - self._start_s:9.3f}] {line.rstrip()}\n")
        self._file.flush()

    def relay(self, stream: IO[str]) -> None:
        for line in stream:
            self.write(line)


def environment_for(trial: Trial, drafts: Path) -> dict[str, str]:
    """The ranks' environment: ours without the traces of other launchers, with the trial's own thread count."""
    # torchrun reads its options from PET_*; TORCHELASTIC_* would make ranks look for an agent that is not there
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in CONTRACT and not name.startswith(("PET_", "TORCHELASTIC_"))
    }
    environment |= {
        "OMP_NUM_THREADS": str(trial.threads_per_rank),
        "MKL_NUM_THREADS": str(trial.threads_per_rank),
        "PYTHONPATH": os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
        "DPSCALE_DRAFTS": str(drafts),
        LAUNCHED: str(time.time_ns()),
        own.FOLDERS: os.pathsep.join(map(str, own.search_folders())),  # ranks may start in another folder
    }
    if trial.compile:  # each launch compiles anew, or the second would find what the first has left
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(drafts / "inductor")
    if "SLURM_JOB_ID" in environment:  # Open MPI asks for the old name, which Snakemake's plugin drops
        environment.setdefault("SLURM_JOBID", environment["SLURM_JOB_ID"])
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if trial.nodes == 1 and loopback:
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)  # nothing of a local run listens to the outside
    elif trial.nodes > 1 and (interface := slurm.cluster_settings().interface):
        environment |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return environment


def by_hand_of(args: argparse.Namespace) -> ByHand | None:
    """This machine's place among several, if the command line gives one.

    Raises:
        UserError: it gives a part of it.
    """
    given = [args.node_rank, args.master_addr, args.master_port]
    if given == [None, None, None]:
        return None
    if None in given:
        raise UserError("--node-rank, --master-addr and --master-port go together")
    return ByHand(*given)


def staging_folder(job: dict[str, Any] | None) -> str | None:
    """Where ranks copy their dataset to first: inside a job, if the cluster's settings ask for it."""
    folder = None if job is None else slurm.cluster_settings().staging_dir
    return None if folder is None else os.path.expandvars(folder)


def job_of(trial: Trial) -> dict[str, Any] | None:
    """The SLURM job around this process, if any. A run on one machine needs none, so there a stray SLURM_JOB_ID is ignored."""
    try:
        return slurm.describe_job()
    except UserError:
        if needs_a_job(trial):
            raise
        return None


def refuse_nested_launchers() -> None:
    """Raises UserError under another launcher: N copies of a trial would each start N ranks."""
    for name, launcher in (
        ("TORCHELASTIC_RUN_ID", "torchrun"),
        ("OMPI_COMM_WORLD_RANK", "mpirun"),
        ("HOROVOD_RANK", "horovodrun"),
        ("DPSCALE_DRAFTS", "scripts/launch.py"),
    ):
        if name in os.environ:
            raise UserError(
                f"launch.py was started by {launcher} ({name} is set) and would start ranks inside ranks; start it on its own"
            )


def missing_program(trial: Trial) -> str | None:
    """Why the trial's launcher can't start ranks here, or None."""
    launcher = LAUNCHERS[trial.launcher]
    if launcher.program is None:
        return None
    if shutil.which(launcher.program) is None:
        return f"needs {launcher.program}: not on this machine's PATH ({launcher.install})"
    if launcher.version:
        asked = [launcher.program, "--version"]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stdout
        if launcher.version not in said:
            found = said.partition("\n")[0] or "nothing known"
            return f"needs {launcher.version}'s {launcher.program}: this one is {found} ({launcher.install})"
    return None


def run_ranks(command: list[str], environment: dict[str, str], timeout_s: float, log: Log) -> int:
    """Run the launcher to its end, or to the time limit; whatever it started is gone afterwards.

    Raises:
        UserError: the time limit was reached.
    """
    log.write(f"$ {' '.join(command)}")
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the ranks in order
            preexec_fn=attempt.die_with_parent,
        )
        assert process.stdout is not None
        relay = threading.Thread(target=log.relay, args=(process.stdout,), daemon=True)
        relay.start()
        exitcode = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise UserError(f"not done after timeout_s={timeout_s:g}; raise timeout_s if the trial is only slow") from None
    finally:
        attempt.end_descendants()
    relay.join(timeout=5)
    return exitcode


def run_attempts(trial: Trial, args: argparse.Namespace, job: dict[str, Any] | None, drafts: Path, log: Log) -> int:
    """Start the trial's ranks until they end well; returns the number of attempts.

    Raises:
        UserError: they failed, by something else than a port that somebody took.
    """
    data = args.data.absolute()
    stage_to = staging_folder(job)
    staging = [] if stage_to is None else [f"--stage-to={stage_to}"]
    train = [str(SCRIPTS / "train.py"), f"--data={data}", f"--out={drafts}", *staging, *trial.to_args()]
    folders = own.search_folders() if own.is_own(trial.model) else []
    seen_in_container = tuple(str(path) for path in (data, drafts, stage_to, *folders) if path is not None)
    number = 0
    while True:
        number += 1
        placement = replace(place(trial, by_hand_of(args), job, number), binds=seen_in_container)
        command = LAUNCHERS[trial.launcher].argv(train, placement)
        exitcode = run_ranks(command, environment_for(trial, drafts), trial.timeout_s, log)
        if exitcode == 0:
            return number
        can_retry = number < ATTEMPTS and args.node_rank is None  # by hand the other machines know one port
        if not (can_retry and attempt.address_was_taken(drafts, placement.master_port)):
            raise attempt.failure_of(drafts, exitcode)
        attempt.forget_failures(drafts)
        log.write(f"port {placement.master_port} was taken meanwhile: trying another")


def measure(trial: Trial, args: argparse.Namespace, log: Log) -> str:
    """One trial, measured into `folder`; returns a line that says how it went.

    Raises:
        UserError: it failed (OutOfMemory: as a device's memory did not suffice); the text names the first failing rank and its error or signal.
    """
    attempt.adopt_orphans()
    trial, search = with_its_batch(trial, args.largest)
    folder = args.folder.absolute()
    job = job_of(trial)
    first_node = args.node_rank in (None, 0)  # of several machines by hand, the one that commits
    # the other machines' own folder: node 0's lock and drafts may lie on the same file system
    with attempt.locked(folder if first_node else folder / f".node{args.node_rank}") as drafts:
        code = trial_code(trial.base, trial.model, trial.launcher)  # refuses a model of one's own that is not there
        started = datetime.now(timezone.utc)
        attempts = 0
        if reason := missing_program(trial):
            Record.write_unavailable(trial, reason, describe_machine("cpu"), drafts)
        else:
            attempts = run_attempts(trial, args, job, drafts, log)
        launch = {
            "command": [sys.executable, *sys.argv],
            "rerun": rerun_command(trial, args),
            "started_at": started.isoformat(),
            "ended_at": datetime.now(timezone.utc).isoformat(),
            "port_attempts": attempts,
            "code": code,
            "slurm": job,
            "largest_batch": search,
        }
        if not first_node:
            return "ok: node 0 has the record"
        return commit(Record.read(drafts / RECORD), launch, drafts, folder)


def rerun_command(trial: Trial, args: argparse.Namespace) -> str:
    """One line for a shell that measures this trial again, alone, from any folder; its record goes into `again`, beside this
    one. On several nodes it is to be typed where this one was: in such a job, or on each machine."""
    settings = json.loads(os.environ.get(slurm.SETTINGS, "{}"))
    settings.pop("prelude", None)  # it came before this process; and nobody knows what stands in it
    variables = {slurm.SETTINGS: json.dumps(settings)} if settings else {}
    if own.is_own(trial.model):
        variables[own.FOLDERS] = os.pathsep.join(str(folder.absolute()) for folder in own.search_folders())
    again = args.folder.absolute() / "again"
    by_hand = {"node-rank": args.node_rank, "master-addr": args.master_addr, "master-port": args.master_port}
    return shlex.join(
        [
            *("env", *(f"{name}={value}" for name, value in variables.items())),
            *(sys.executable, str(SCRIPTS / "launch.py"), f"--data={args.data.absolute()}"),
            *(f"--folder={again}", f"--log={again / 'trial.log'}"),
            *(f"--{name}={value}" for name, value in by_hand.items() if value is not None),
            *trial.to_args(),
        ]
    )


def commit(draft: Record, launch: dict, drafts: Path, folder: Path) -> str:
    """Complete the draft with what only this process knows, and put all its files under their final names."""
    environment = {**draft.environment, "code_digest": digest_of(("train.py",)), "commit": commit_of_this_checkout()}
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


def commit_of_this_checkout() -> str | None:
    """The git commit, with -dirty if files differ from it; None outside a checkout."""
    command = ["git", "-C", str(SCRIPTS), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--folder", type=Path, required=True, help="where record.json and steps.parquet go")
    parser.add_argument("--log", type=Path, required=True, help="the ranks' output")
    parser.add_argument("--end-with-parent", action="store_true", help="end when what started this is killed")
    parser.add_argument("--largest", type=Path, help="largest.json of the search for this trial's batch")
    by_hand = parser.add_argument_group("one of several machines, started by hand on each")
    by_hand.add_argument("--node-rank", type=int, help="this machine's number, from 0")
    by_hand.add_argument("--master-addr", help="host name or address of machine 0")
    by_hand.add_argument("--master-port", type=int, help="a free port of machine 0")
    Trial.add_arguments(parser)
    args = parser.parse_args()
    trial = Trial.from_args(args)
    for number in attempt.END_SIGNALS:
        signal.signal(number, attempt.interrupt)
    if args.end_with_parent:
        attempt.die_with_parent(signal.SIGTERM)
    prefer_this_python()  # horovodrun lies beside it
    log = Log(args.log)
    try:
        refuse_nested_launchers()
        outcome = measure(trial, args, log)
    except attempt.Busy as busy:
        print(f"{trial.id}: {busy}", file=sys.stderr)
        return 1
    except UserError as error:
        log.write(f"failed: {error}")
        print(f"{trial.id}: {error}\n  log: {args.log}", file=sys.stderr)
        return attempt.OUT_OF_MEMORY if isinstance(error, attempt.OutOfMemory) else 1
    except OSError as error:
        if error.errno not in DISK_IS_FULL:
            raise
        where = error.filename or args.folder  # nothing into the log: it lies there, too
        print(
            f"{trial.id}: {error.strerror}: {where}; free space there and run the same command again", file=sys.stderr
        )
        return 1
    except attempt.Interrupted as interrupted:
        log.write(f"ended by {signal.Signals(interrupted.number).name}")
        return 128 + interrupted.number
    log.write(outcome)
    if outcome != "ok":
        print(f"{trial.id}: {outcome}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
