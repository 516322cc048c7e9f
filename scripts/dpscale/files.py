"""Files that are whole or not there: the one writer of whatever has a final name.

What is made of other files is sealed: its digest lies beside it, so that one which was cut or edited since is known.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dpscale.disk import room_for
from dpscale.errors import Damaged, UserError


def refuse_output(path: Path, inputs: Iterable[Path] = ()) -> None:
    """Raises UserError: no file can have this name, or one that is read has it."""
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it, or name a file in another one")
    if path.is_dir():
        raise UserError(f"{path}: a folder; name a file in it")
    if path.exists() and any(path.samefile(read) for read in inputs if read.exists()):
        raise UserError(f"{path}: it is read, and what is written would take its place; name another file to write")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write into, which appears under its name only when the block has ended well and all of it is on the disk:
    the writer may be ended at any moment.

    Raises:
        UserError: no file can have that name.
        DiskIsFull: there is no room; what was there before stays.
    """
    refuse_output(path)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with room_for(path):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """As `whole_file`, of a content that is at hand."""
    with whole_file(path) as file:
        file.write(content)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


SEAL = ".*.sha256"  # a line as sha256sum writes and checks it


def seal_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256")


def sealed_by(seal: Path) -> Path:
    return seal.with_name(seal.name[1:].removesuffix(".sha256"))


def write_sealed(path: Path, content: bytes) -> None:
    """Write a file that is made of others, and its seal. At no moment is a seal there that is not the file's.

    Raises:
        DiskIsFull: as `whole_file`.
    """
    seal_of(path).unlink(missing_ok=True)
    write_atomically(path, content)
    write_atomically(seal_of(path), f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode())


def how_changed(path: Path) -> str | None:
    """What a file's seal says is wrong with it. One without a seal, as those of another's hand, is as it was made, unless it is a
    table of which rows are cut."""
    seal = seal_of(path)
    if seal.exists():
        return None if seal.read_text().split(" ")[0] == sha256_of(path) else "cut or changed since it was made"
    return None if path.suffix != ".csv" or has_whole_rows(path) else "not a whole table: a row of it is cut"


def is_as_made(path: Path) -> bool:
    return how_changed(path) is None


def has_whole_rows(table: Path) -> bool:
    """Whether each row of a csv file is as long as its header, and the last one ends: readers fill the one that was cut, and
    take half a number for a number."""
    with table.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 1))
        if file.read() != b"\n":
            return False
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file, strict=True)
            return len(set(map(len, filter(None, rows)))) == 1  # an empty line is no row
    except (UnicodeDecodeError, csv.Error):
        return False


def refuse_changed(path: Path, remedy: str) -> None:
    """Raises Damaged: it is not what its seal says, or a table that is cut."""
    if path.exists() and (wrong := how_changed(path)):
        raise Damaged(f"{path}: {wrong}; {remedy}")
