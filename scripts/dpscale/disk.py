"""A disk that is full, said in one line: which file did not fit, and onto which disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpscale.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT)
PROBE_BYTES = 2**16


class DiskIsFull(UserError):
    """There is no room for a file."""


def disk_of(path: Path) -> Path:
    """Where the file system that holds a path, there or not, is mounted."""
    for folder in (path.absolute(), *path.absolute().parents):
        if os.path.ismount(folder):
            return folder
    return Path("/")


def described(path: Path, error: OSError) -> str:
    """Which file found no room, and where."""
    disk = disk_of(path)
    size_MB = shutil.disk_usage(disk).total / 1e6
    return (
        f"{path}: {error.strerror}: the disk at {disk} ({size_MB:,.1f} MB) is full; "
        "free space there and run the same command again"
    )


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Raises DiskIsFull, about the file that the error names or else about `path`, where the block finds no room."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise DiskIsFull(described(Path(error.filename or path), error)) from None


@contextmanager
def if_there_is_room() -> Iterator[None]:
    """For what is put down about a failure: on a full disk it is left out, and hides no other error."""
    with suppress(DiskIsFull), room_for(Path()):
        yield


def refuse_full(folder: Path) -> None:
    """Raises DiskIsFull: not even a small file fits."""
    probe = folder / ".probe.partial"
    with room_for(folder):
        try:
            with probe.open("wb") as file:
                file.write(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
