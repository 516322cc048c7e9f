"""Who holds the folder that Snakemake works in: its own lock says that there is one, and not who."""

from __future__ import annotations

import atexit
import json
import os
import socket
from pathlib import Path

import psutil

from dpscale.disk import room_for
from dpscale.errors import UserError
from dpscale.files import write_atomically

LOCKS, HOLDERS = Path(".snakemake/locks"), Path(".snakemake/holders")
REMEDY = "wait or end it; if it is gone for sure: snakemake --unlock"


def say_who_may_hold() -> None:
    """Put down that this process may take the lock, until it ends in order.

    Each has a file of its own, and writes it before it asks for the lock: killed or asked about at any moment after
    that, it is known.

    Raises:
        DiskIsFull: there is no room for it.
    """
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started_s": psutil.Process().create_time()}
    path = HOLDERS.absolute() / f"{me['host']}-{me['pid']}.json"
    with room_for(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(me).encode())
    atexit.register(_forget, path, os.getpid())


def _forget(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # and not a copy of it that was forked
        path.unlink(missing_ok=True)


def is_left_behind() -> bool:
    """Whether the current folder is locked by a Snakemake that lives no more. False: it is not locked.

    Raises:
        UserError: the one that holds it lives, or is on another machine, or nobody knows who it was.
    """
    why_not = {path: _why_not_dead(path) for path in sorted(HOLDERS.glob("*.json"))}
    dead = [path for path, reason in why_not.items() if reason is None]
    # looked at after those: one that had died by then without leaving a lock holds nothing
    locked = LOCKS.is_dir() and any(LOCKS.iterdir())
    if locked:
        for reason in filter(None, why_not.values()):
            raise UserError(reason)
        if not dead:
            raise UserError(f"{LOCKS}: a Snakemake has locked this folder and left no word of itself; {REMEDY}")
    for path in dead:
        path.unlink(missing_ok=True)
    return locked


def _why_not_dead(path: Path) -> str | None:
    """What speaks against the death of whoever wrote this file, and what to do then; None: nothing."""
    try:
        holder = json.loads(path.read_text())
        host, pid, started_s = holder["host"], holder["pid"], holder["started_s"]
    except FileNotFoundError:
        return None  # it has just ended in order
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path}: nobody can tell from it who has locked this folder; {REMEDY}, and delete that file"
    if host != socket.gethostname():
        return f"process {pid} on {host} has locked this folder; {REMEDY}, and delete {path}"
    try:
        process = psutil.Process(pid)
        # a dead one that nobody waits for stays in the table: in a container whose first process is no init, for ever
        alive = process.create_time() == started_s and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        alive = False
    return f"process {pid} works in this folder; {REMEDY}" if alive else None
