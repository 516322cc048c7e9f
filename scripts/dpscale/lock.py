"""Who holds the folder that Snakemake works in: its own lock says that there is one, and not who."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import psutil

from dpscale.errors import UserError
from dpscale.record import write_atomically

LOCKS, HOLDER = Path(".snakemake/locks"), Path(".snakemake/holder.json")


def say_who_holds() -> None:
    """Put down that this process does. Snakemake calls it once it has the lock."""
    me = {"host": socket.gethostname(), "pid": os.getpid(), "started_s": psutil.Process().create_time()}
    HOLDER.parent.mkdir(exist_ok=True)
    write_atomically(HOLDER, json.dumps(me).encode())


def is_left_behind() -> bool:
    """Whether the current folder is locked by a Snakemake that lives no more. False: it is not locked.

    Raises:
        UserError: the one that holds it lives, or is on another machine, or nobody knows who it was.
    """
    if not LOCKS.is_dir() or not any(LOCKS.iterdir()):
        return False
    remedy = "wait or end it; if it is gone for sure: snakemake --unlock"
    try:
        holder = json.loads(HOLDER.read_text())
        host, pid, started_s = holder["host"], holder["pid"], holder["started_s"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{LOCKS}: a Snakemake has locked this folder and left no word of itself; {remedy}") from None
    if host != socket.gethostname():
        raise UserError(f"process {pid} on {host} has locked this folder; {remedy}")
    try:
        alive = psutil.Process(pid).create_time() == started_s
    except psutil.NoSuchProcess:
        alive = False
    if alive:
        raise UserError(f"process {pid} works in this folder; {remedy}")
    return True
