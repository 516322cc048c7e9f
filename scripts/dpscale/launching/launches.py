"""What every launch of ranks shares, whatever they run: log, environment, launcher, attempts, and what is refused."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import IO, Any

from dpscale import own
from dpscale.code import SCRIPTS, digest_of
from dpscale.disk import if_there_is_room, refuse_full, room_for
from dpscale.environment import prefer_this_python
from dpscale.errors import UserError
from dpscale.launched import Launched
from dpscale.launching import attempt, slurm
from dpscale.launching.history import History
from dpscale.launching.launchers import CONTRACT, LAUNCHERS
from dpscale.launching.placement import ByHand, needs_a_job, place
from dpscale.phases import LAUNCHED

# glibc gives freed memory back, and each step's tensors fault it in again page by page: a tenth of a CPU step and more,
# and none that two strategies pay alike. Tensors above the first limit, the highest that glibc takes, are mapped still.
KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}
EXIT_CODES = {attempt.OutOfMemory: attempt.OUT_OF_MEMORY, attempt.Stopped: attempt.RESUMABLE}
SAVING_TIME_S = 20.0  # of SLURM's 30 between TERM and KILL
ATTEMPTS = 3  # a port can be taken between its choice and the bind
BEFORE_A_TAG = re.compile(r"\[\d+\]<std(?:out|err)>:(?=\[rank )")  # horovodrun's own, which nothing turns off


class Log:
    """The log of a launch: what is said of it, and the lines of all ranks with their numbers (see output.py), each with the
    seconds since the start that this process saw it at.

    The file is begun with the first line: a launch that finds another one at work leaves that one's log alone.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._start_s = path, time.perf_counter()
        self._file: FileIO | None = None
        self._of_attempt = path

    def begin_attempt(self, number: int) -> None:
        """Before the first line: it goes into a file of this attempt's own, to which the log's name leads.

        Snakemake deletes the log of a job before it runs that again.
        """
        if number == 1:
            for path in self._path.parent.glob(f"{self._path.stem}.attempt-*{self._path.suffix}"):
                path.unlink()  # of a record that is measured again
        self._of_attempt = self._path.with_suffix(f".attempt-{number}{self._path.suffix}")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._path.symlink_to(self._of_attempt.name)

    def end_last_attempt(self) -> None:
        """Once there is a record, the log of its attempt is the log."""
        self._path.unlink()
        if self._of_attempt.exists():
            self._of_attempt.rename(self._path)

    def write(self, line: str) -> None:
        """Raises DiskIsFull."""
        with room_for(self._path):
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("wb", buffering=0)
            self._file.write(f"[{time.perf_counter() - self._start_s:9.3f}] {line.rstrip()}\n".encode())

    def relay(self, stream: IO[str]) -> None:
        """To its end, disk or not: ranks whose output nobody reads would wait for ever."""
        for line in stream:
            with if_there_is_room():
                self.write(BEFORE_A_TAG.sub("", line))


@contextmanager
def attempted(history: History, log: Log) -> Iterator[None]:
    """One more attempt of a history, with a log of its own; how it ends is put down."""
    said = history.begin()
    log.begin_attempt(len(history.attempts))
    if said is not None:
        log.write(said)
    try:
        yield
    except attempt.Interrupted as interrupted:
        with if_there_is_room():
            history.end(f"ended by {signal.Signals(interrupted.number).name}")
        raise
    except UserError as error:
        with if_there_is_room():
            history.end(str(error))
        raise
    history.end("ok")


def environment_for(launched: Launched, drafts: Path) -> dict[str, str]:
    """The ranks' environment: ours without the traces of other launchers, with the launch's own thread count."""
    # torchrun reads its options from PET_*; TORCHELASTIC_* would make ranks look for an agent that is not there
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in CONTRACT and not name.startswith(("PET_", "TORCHELASTIC_"))
    }
    environment |= {
        "OMP_NUM_THREADS": str(launched.threads_per_rank),
        "MKL_NUM_THREADS": str(launched.threads_per_rank),
        "PYTHONPATH": os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHONUNBUFFERED": "1",
        "DPSCALE_DRAFTS": str(drafts),
        LAUNCHED: str(time.time_ns()),
        own.FOLDERS: os.pathsep.join(map(str, own.search_folders())),  # ranks may start in another folder
    }
    if launched.device == "cpu":
        environment = KEPT_MEMORY | environment
    if "SLURM_JOB_ID" in environment:  # Open MPI asks for the old name, which Snakemake's plugin drops
        environment.setdefault("SLURM_JOBID", environment["SLURM_JOB_ID"])
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if launched.nodes == 1 and loopback:  # nothing of a local run listens to the outside
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)
        if launched.device == "cuda":
            environment.setdefault("NCCL_SOCKET_IFNAME", loopback)
    elif launched.nodes > 1 and (interface := slurm.cluster_settings().interface):
        environment |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every script that starts ranks takes."""
    parser.add_argument("--folder", type=Path, required=True, help="where the results go")
    parser.add_argument("--log", type=Path, required=True, help="the ranks' output")
    parser.add_argument("--end-with-parent", action="store_true", help="end when what started this is killed")
    by_hand = parser.add_argument_group("one of several machines, started by hand on each")
    by_hand.add_argument("--node-rank", type=int, help="this machine's number, from 0")
    by_hand.add_argument("--master-addr", help="host name or address of machine 0")
    by_hand.add_argument("--master-port", type=int, help="a free port of machine 0")


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


def job_of(launched: Launched) -> dict[str, Any] | None:
    """The SLURM job around this process, if any. A run on one machine needs none, so there a stray SLURM_JOB_ID is ignored."""
    try:
        return slurm.describe_job()
    except UserError:
        if needs_a_job(launched):
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


def missing_program(launched: Launched) -> str | None:
    """Why its launcher can't start ranks here, or None."""
    launcher = LAUNCHERS[launched.launcher]
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


def run_ranks(command: list[str], environment: dict[str, str], timeout_s: float, drafts: Path, log: Log) -> int:
    """Run the launcher to its end, or to the time limit; whatever it started is gone afterwards.

    Ranks that can save themselves get the time for it when a signal of a scheduler ends this process.

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
    except attempt.Interrupted as interrupted:
        if interrupted.number in attempt.STOP_SIGNALS and attempt.ask_to_stop(drafts):
            log.write(f"{signal.Signals(interrupted.number).name}: asking the ranks to save themselves and end")
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAVING_TIME_S)
            attempt.refuse_stopped(drafts)
        raise
    except subprocess.TimeoutExpired:
        raise UserError(f"not done after timeout_s={timeout_s:g}; raise timeout_s if it is only slow") from None
    finally:
        attempt.end_descendants()
    relay.join(timeout=5)
    return exitcode


def run_attempts(
    launched: Launched,
    by_hand: ByHand | None,
    job: dict[str, Any] | None,
    drafts: Path,
    command: list[str],
    binds: tuple[str, ...],
    run: Callable[[list[str]], int],
    log: Log,
) -> int:
    """Start ranks until they end well; returns the number of attempts.

    Args:
        command: what each rank runs.
        binds: folders that it must see inside a container.
        run: starts the launcher of this argv, and returns its exit code.

    Raises:
        UserError: they failed, by something else than a port that somebody took.
    """
    number = 0
    while True:
        number += 1
        placement = replace(place(launched, by_hand, job, number), binds=binds)
        exitcode = run(LAUNCHERS[launched.launcher].argv(command, placement))
        if exitcode == 0:
            return number
        attempt.refuse_stopped(drafts)
        can_retry = number < ATTEMPTS and by_hand is None  # by hand the other machines know one port
        if not (can_retry and attempt.address_was_taken(drafts, placement.master_port)):
            failure = attempt.failure_of(drafts, exitcode)
            refuse_full(drafts)  # whatever the ranks could still say of it
            raise failure
        attempt.forget_failures(drafts)
        log.write(f"port {placement.master_port} was taken meanwhile: trying another")


def to_its_end(name: str, measure: Callable[[], str], args: argparse.Namespace, log: Log) -> int:
    """Measure, in a process that ends in order; returns its exit code.

    Args:
        name: of what is measured.
        measure: returns a line that says how it went.
        args: as `add_arguments` has them.
    """
    for number in attempt.END_SIGNALS:
        signal.signal(number, attempt.interrupt)
    if args.end_with_parent:
        attempt.die_with_parent(signal.SIGTERM)
    prefer_this_python()  # horovodrun lies beside it
    try:
        refuse_nested_launchers()
        with room_for(args.folder):
            outcome = measure()
    except attempt.Busy as busy:
        print(f"{name}: {busy}", file=sys.stderr)
        return 1
    except UserError as error:
        with if_there_is_room():
            log.write(f"{'' if isinstance(error, attempt.Stopped) else 'failed: '}{error}")
        print(f"{name}: {error}\n  log: {args.log}", file=sys.stderr)
        if isinstance(error, attempt.Stopped):
            queue_again_if_preempted(log)
        return EXIT_CODES.get(type(error), 1)
    except attempt.Interrupted as interrupted:
        with if_there_is_room():
            log.write(f"ended by {signal.Signals(interrupted.number).name}")
        return 128 + interrupted.number
    with if_there_is_room():  # the record has it
        log.write(outcome)
    if outcome != "ok":
        print(f"{name}: {outcome}", file=sys.stderr)
    return 0


def queue_again_if_preempted(log: Log) -> None:
    """Where SLURM owns retries, and has given the job time to end."""
    for number in attempt.END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # of SLURM, which ends what it queues again
    try:
        if slurm.queue_preempted_job_again():
            log.write("pre-empted: SLURM has queued this job again")
    except UserError as error:
        log.write(f"not queued again: {error}")


def with_code(environment: dict[str, Any], script: str) -> dict[str, Any]:
    """A draft's environment, completed with the code that measured it."""
    return {**environment, "code_digest": digest_of((script,)), "commit": commit_of_this_checkout()}


def commit_of_this_checkout() -> str | None:
    """The git commit, with -dirty if files differ from it; None outside a checkout."""
    command = ["git", "-C", str(SCRIPTS), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None
