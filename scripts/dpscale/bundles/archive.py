"""A .tar.gz that depends on nothing but the names and contents of its files: sorted, without owners, all of one time."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

from dpscale.disk import room_for
from dpscale.files import sha256_of

CHECKSUMS = "SHA256SUMS"
MADE_AT_S = 315532800  # 1980-01-01 UTC: what every archiver takes for a time
Content = Path | bytes


def checksums(files: Mapping[str, Content]) -> bytes:
    """As `sha256sum -c` reads them."""
    return "".join(f"{_sha256(content)}  {name}\n" for name, content in sorted(files.items())).encode()


def write_archive(path: Path, folder: str, files: Mapping[str, Content]) -> None:
    """All files below one folder, with their checksums; the archive appears whole or not at all.

    Raises:
        DiskIsFull: there is no room for it.
    """
    whole = {**files, CHECKSUMS: checksums(files)}
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with room_for(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                temporary.open("wb") as raw,
                gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as zipped,
                tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
            ):
                for name, content in sorted(whole.items()):
                    _add(tar, f"{folder}/{name}", content)
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, name: str, content: Content) -> None:
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = MADE_AT_S, 0o644
    if isinstance(content, bytes):
        entry.size = len(content)
        tar.addfile(entry, BytesIO(content))
        return
    entry.size = content.stat().st_size
    with content.open("rb") as file:
        tar.addfile(entry, file)


def _sha256(content: Content) -> str:
    return hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else sha256_of(content)
