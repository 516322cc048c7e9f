"""One attempt at a trial: its lock, its folder of drafts, its processes, and what is said when it fails.

Nothing that an attempt starts outlives it: the launching process adopts orphans (PR_SET_CHILD_SUBREAPER), ranks are
killed when their parent dies (PR_SET_PDEATHSIG), and `end_descendants` leaves none behind.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import SystemRandom
from types import FrameType
from typing import Any, NoReturn

import psutil

from dpscale.disk import if_there_is_room
from dpscale.errors import UserError
from dpscale.files import write_atomically

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOWEST_PORT = 10_000
OUT_OF_MEMORY_WORDS = (
    "cuda error: out of memory",
    "'out of memory'",
    "status_alloc_failed",
)  # CUDA, NCCL, cuBLAS, cuDNN
STOPPED = "stopped.json"
OUT_OF_MEMORY = 3  # exit code of a launch that ended with OutOfMemory
RESUMABLE = 75  # of one that was asked to end and has saved itself: EX_TEMPFAIL of sysexits.h, "try again"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # a scheduler's, ahead of the end
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


class Busy(UserError):
    """Another process measures this trial right now."""


class OutOfMemory(UserError):
    """What a rank needed was more than its device has."""


class Stopped(UserError):
    """The ranks were asked to end, and have saved themselves."""


class Interrupted(Exception):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        self.number = number


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """A handler of signals that ask this process to end: it does, in order."""
    for other in END_SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # a second Ctrl-C must not cut the end of the ranks short
    raise Interrupted(number)


def die_with_parent(by: signal.Signals = signal.SIGKILL, parent: int | None = None) -> None:
    """Ask the kernel to end this process when its parent dies. Linux only; elsewhere nothing is asked.

    Args:
        parent: the parent's pid, where it is known: if it died before it could be asked, this process ends at once.
    """
    _prctl(PR_SET_PDEATHSIG, by)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent died. Linux only."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def end_descendants(grace_s: float = 3.0) -> None:
    """End every process below this one: TERM, and KILL for those that are still there after the grace time."""
    for kill in (False, True):
        descendants = psutil.Process().children(recursive=True)
        for process in descendants:
            try:
                process.kill() if kill else process.terminate()
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(descendants, timeout=grace_s)
        if not alive and not psutil.Process().children():
            return


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Hold a trial's folder; yields an empty folder in it for drafts, gone afterwards. The kernel drops a dead lock.

    Raises:
        Busy: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    with path.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise Busy(
                f"{folder}: process {lock.read().strip()} measures this trial right now; wait or end it"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        drafts = folder / ".attempt"
        shutil.rmtree(drafts, ignore_errors=True)  # of an attempt that was killed
        drafts.mkdir()
        try:
            yield drafts
        finally:
            shutil.rmtree(drafts, ignore_errors=True)  # the lock's file stays: unlinking it would let two in


@cache
def ephemeral_ports_begin() -> int:
    """The first port that the kernel hands out by itself; those below it are taken by nobody by chance."""
    path = Path("/proc/sys/net/ipv4/ip_local_port_range")
    return int(path.read_text().split()[0]) if path.exists() else 32_768


def free_port() -> int:
    """A TCP port on loopback that nobody listens on, below the ephemeral range."""
    highest = ephemeral_ports_begin()
    if highest - LOWEST_PORT < 1000:  # a machine that hands out nearly all of them: any port may be taken at any time
        highest = 65_536
    for port in SystemRandom().sample(range(LOWEST_PORT, highest), 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise UserError(f"no free TCP port among 100 tried from {LOWEST_PORT} to {highest}")


def write_failure(drafts: Path, error: BaseException) -> None:
    """Put down why this process fails, unless it has said so. The first of all ranks' failures is the cause; what
    follows are the others' lost connections."""
    rank = os.environ.get("RANK")
    path = drafts / f"failure-{rank or 'launcher'}.json"
    if path.exists():
        return
    message = "; ".join([str(error), *getattr(error, "__notes__", [])])
    if not isinstance(error, UserError):
        message = f"{f'rank {rank}' if rank else 'the launcher'} failed with {type(error).__name__}: {message}"
    with if_there_is_room():
        _put_down(path, {"when_ns": time.time_ns(), "message": message, "out_of_memory": is_out_of_memory(error)})


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device's memory did not suffice: torch's allocator says so by type, CUDA's libraries in words."""
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in said for words in OUT_OF_MEMORY_WORDS)


def write_rank(drafts: Path, rank: int) -> None:
    """Put down that this process is a rank that saves itself when it is asked to stop."""
    _put_down(drafts / f"rank-{rank}.json", {"pid": os.getpid(), "host": socket.gethostname()})


def ask_to_stop(drafts: Path) -> bool:
    """Ask those ranks on this machine that can save themselves; returns whether there are any."""
    asked = False
    for path in drafts.glob("rank-*.json"):
        rank = json.loads(path.read_text())
        if rank["host"] == socket.gethostname():
            try:
                os.kill(rank["pid"], signal.SIGUSR1)
            except ProcessLookupError:
                continue
            asked = True
    return asked


def write_stopped(drafts: Path, epochs: int, steps: int) -> None:
    """Put down that the training was asked to stop, and how far its checkpoint is."""
    _put_down(drafts / STOPPED, {"epochs": epochs, "steps": steps})


def refuse_stopped(drafts: Path) -> None:
    """Raises Stopped: the ranks have been asked to, and have saved themselves."""
    path = drafts / STOPPED
    if path.exists():
        saved = json.loads(path.read_text())
        raise Stopped(
            f"stopped after {saved['epochs']} epochs and {saved['steps']} steps, and saved; run the same command to go on"
        )


def write_exit(drafts: Path, rank: int, exitcode: int) -> None:
    """Put down, from the process that started it, how a node's first failing rank ended. Negative is a signal's number."""
    with if_there_is_room():
        _put_down(drafts / f"exit-{rank}.json", {"rank": rank, "exitcode": exitcode, "when_ns": time.time_ns()})


def watch_rank(run: Callable[[], object], drafts: Path, rank: int) -> int:
    """Run this rank in a child process, and put down how it ends: for launchers that keep that to themselves.

    Returns:
        The exit code that the launcher is to see: the rank's, or 128 + the number of the signal that killed it. In the
        child it is 0, if `run` returns at all.
    """
    die_with_parent()
    watching = os.getpid()
    child = os.fork()  # nothing is loaded yet: no thread runs, no device is open
    if child == 0:
        die_with_parent(parent=watching)
        run()
        return 0
    # a rank that is told to end must have the time to do so, and this process the time to put it down
    for number in (signal.SIGINT, *STOP_SIGNALS):
        signal.signal(number, lambda number, _: os.kill(child, number))
    exitcode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if exitcode:
        write_exit(drafts, rank, exitcode)
    return exitcode if exitcode >= 0 else 128 - exitcode


def _put_down(path: Path, facts: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(facts).encode())


def forget_failures(drafts: Path) -> None:
    """Before another attempt, whose failure must not be taken for this one's."""
    for path in [*drafts.glob("failure-*.json"), *drafts.glob("exit-*.json")]:
        path.unlink()


def failure_of(drafts: Path, exitcode: int) -> UserError:
    """What to raise for ranks that failed; OutOfMemory where that is how the first of them did."""
    failures = _failures(drafts)
    cause = explain_failure(drafts, exitcode)
    known = bool(failures) and failures[0]["message"] == cause and failures[0].get("out_of_memory")
    return OutOfMemory(cause) if known else UserError(cause)


def _failures(drafts: Path) -> list[dict[str, Any]]:
    """What ranks and the launcher have put down, the earliest first."""
    found = [json.loads(path.read_text()) for path in drafts.glob("failure-*.json")]
    return sorted(found, key=lambda failure: failure["when_ns"])


def explain_failure(drafts: Path, exitcode: int) -> str:
    """One line: the first failing rank, and its own error or the signal that killed it."""
    exits = [json.loads(path.read_text()) for path in drafts.glob("exit-*.json")]
    # a rank that a signal ended is a cause; TERM is what the others get when everything is ended
    exits.sort(key=lambda item: (item["exitcode"] >= 0 or item["exitcode"] == -signal.SIGTERM, item["when_ns"]))
    first: dict[str, Any] | None = exits[0] if exits else None
    failures = _failures(drafts)
    # ABRT is what NCCL's watchdog does to the ranks that wait for one which failed
    if first and first["exitcode"] < 0 and not (failures and first["exitcode"] == -signal.SIGABRT):
        return f"rank {first['rank']} was {_killed_by(first['exitcode'])}"
    if failures:
        message: str = failures[0]["message"]
        return message
    if first:
        return f"rank {first['rank']} ended with exit code {first['exitcode']}"
    end = f"was {_killed_by(exitcode)}" if exitcode < 0 else f"ended with exit code {exitcode}"
    return f"before any rank ended, the launcher {end}"


def _killed_by(exitcode: int) -> str:
    name = signal.Signals(-exitcode).name
    return f"killed by {name}" + (": out of memory is the usual cause" if name == "SIGKILL" else "")


def address_was_taken(drafts: Path, port: int) -> bool:
    """Whether the attempt failed because somebody took its port between the choice and the bind.

    A rank may have said so. Or another one, which met a stranger at that port, failed first: then all were ended before
    rank 0 could say it, but the stranger still listens, now that none of ours does.
    """
    texts = [path.read_text().lower() for path in drafts.glob("failure-*.json")]
    said = any("address already in use" in text for text in texts)  # torch's words and the socket's are the same
    return said or _somebody_listens(port)


def _somebody_listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # our own closed connections don't count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
