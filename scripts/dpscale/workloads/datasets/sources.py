"""The files of a dataset, out of a local folder or archive.

An archive is read where it lies. Nothing of it is unpacked, so none of its names can lead out of a folder.
"""

from __future__ import annotations

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from dpscale.errors import UserError
from dpscale.workloads.datasets.base import RECEIPT

# what a cut or broken file ends in; RuntimeError: a zip that asks for a password
UNREADABLE = (EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
BLOCK = 1 << 20
Members = Iterator[tuple[str, Callable[[], bytes]]]  # where a file lies in its source, and how to read it


@dataclass(frozen=True)
class File:
    """One file of a dataset, decompressed."""

    place: str  # for messages
    content: bytes


def read_files(source: str | Path | None, names: Sequence[str], archive: str | None = None) -> dict[str, File]:
    """Name -> file, each plain or as `<name>.gz`, wherever it lies in an archive, or in a folder or one of its subfolders.

    Args:
        source: a folder, or a tar or zip archive.
        archive: name of the archive that is published; a folder that holds it will do.

    Raises:
        UserError: there is no such source, or it is not whole; a file is missing, or there twice.
    """
    if source is None:
        raise UserError("source is not given: the folder or archive that holds the dataset's files")
    source = Path(source)
    if archive is not None and (source / archive).is_file():
        source /= archive
    if not source.exists():
        raise UserError(
            f"{source}: there is no such folder or archive; mend source, or remove it to have the files fetched"
        )
    candidates = [f"{name}{suffix}" for name in names for suffix in ("", ".gz")]
    found: dict[str, File] = {}  # as they lie there: of a file that is there plain and gzipped, both
    try:
        for member, read in _members(source, candidates):
            file_name = PurePosixPath(member).name
            if file_name not in candidates:
                continue
            if file_name in found:
                raise UserError(
                    f"{source}: holds {file_name} twice, as {found[file_name].place} and {member}; leave one"
                )
            found[file_name] = File(member, read())
    except UNREADABLE as error:
        raise UserError(f"{source}: can't be read to its end ({error}); copy it again") from None
    if missing := [name for name in names if not {name, f"{name}.gz"} & found.keys()]:
        published = f", or {archive}" if archive else ""
        remedy = "; delete this folder to have them fetched again" if (source / RECEIPT).is_file() else ""
        raise UserError(
            f"{source}: holds no {missing[0]}, plain or as .gz; the dataset consists of {', '.join(names)}{published}{remedy}"
        )
    separator = "/" if source.is_dir() else ": "
    return {name: _plain(f"{source}{separator}", found.get(name) or found[f"{name}.gz"]) for name in names}


def _members(source: Path, names: Sequence[str]) -> Members:
    if source.is_dir():
        return _of_folder(source, names)
    if zipfile.is_zipfile(source):
        return _of_zip(source)
    if tarfile.is_tarfile(source):
        return _of_tar(source)
    raise UserError(f"{source}: neither a folder nor a whole tar or zip archive; copy it again, or name another source")


def _of_folder(folder: Path, names: Sequence[str]) -> Members:
    for name in names:
        paths = [folder / name] if (folder / name).is_file() else sorted(folder.glob(f"*/{name}"))
        yield from ((path.relative_to(folder).as_posix(), path.read_bytes) for path in paths if path.is_file())


def _of_zip(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                yield member.filename, partial(archive.read, member)


def _of_tar(path: Path) -> Members:
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content.read
        while archive.fileobj is not None and archive.fileobj.read(BLOCK):  # a compressed one ends with its checksum
            continue


def _plain(before: str, file: File) -> File:
    place = f"{before}{file.place}"
    if not place.endswith(".gz"):
        return File(place, file.content)
    try:
        return File(place, gzip.decompress(file.content))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{place}: not a whole gzip file ({error}); copy it again") from None
