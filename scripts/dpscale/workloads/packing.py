"""Packing: the encoded images of a dataset, one after another in few large files, with an index.

A million small files cost a network file system more than their bytes do. Packed, an image is one read of some 10 to
100 KB at a known place, in any order, and every rank of a node shares what the kernel has cached. A prepared folder
holds, for each split:

    <split>-00000.images ...   the encoded images, `images_per_file` in each but the last
    <split>-spans.npy          (n, 2) int64: an image's first byte in its file, and how many there are
    <split>-labels.npy         (n,) int64
    classes.txt                the classes in the order of their labels
    source, packing.json       from what this was packed, and the manifest's facts of it: another crop packs nothing anew

Images come in the order of their classes. As many processes as there are CPUs pack a file each; files that are done stay
when the work is interrupted, and the next attempt does the others.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dpscale.errors import UserError
from dpscale.files import sha256_of, whole_file, write_atomically
from dpscale.launching.attempt import die_with_parent
from dpscale.monitoring.monitor import usable_cpus
from dpscale.workloads.image_files import Found, ImageFile
from dpscale.workloads.images import decoded, shrunk, size_of
from dpscale.workloads.prepared import (
    FORMAT_VERSION,
    Manifest,
    Packing,
    held,
    moments,
    packed_file,
    put_in_place,
)

IMAGES_PER_FILE = 4096  # of ImageNet's: 450 MB as they are, 130 MB with short side 256
AGAIN = "run it again: files that are done stay"
SOURCE, FACTS, CLASSES = "source", "packing.json", "classes.txt"
Unreadable = tuple[str, str]  # (image, why)


class NotAllReadable(Exception):
    """The file of these images is not to appear."""


@dataclass(frozen=True)
class Part:
    """What becomes one file: successive images of a split."""

    name: str
    images: list[ImageFile]

    @property
    def report(self) -> str:
        """Name of what is written after it, and kept until all files are there."""
        return f"{self.name}.json"


def pack(folder: Path, dataset: str, sample_shape: tuple[int, ...], found: Found, packing: Packing) -> Manifest:
    """Pack the images and write the manifest last. The folder appears under its name only when it is whole.

    Raises:
        UserError: images can't be read, all of which are named; another process is at it; or files can't be written.
    """
    source = _digest_of(found, packing)
    with _working_folder(folder, source) as working:
        if not (working / FACTS).exists():
            parts = {split: _parts(split, images, packing.images_per_file) for split, images in found.splits.items()}
            _pack_all(working, [part for of_split in parts.values() for part in of_split], packing)
            write_atomically(working / FACTS, json.dumps(_finish(working, found.classes, parts)).encode())
        for report in working.glob("*.images.json"):
            report.unlink()
        facts = json.loads((working / FACTS).read_text())
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            dataset=dataset,
            kind="images",
            sample_shape=list(sample_shape),
            classes=len(found.classes),
            counts={split: len(images) for split, images in found.splits.items()},
            mean=facts["mean"],
            std=facts["std"],
            packing=packing,
            sha256=facts["sha256"],
        )
        manifest.write(working)
        put_in_place(working, folder)
    return manifest


def _digest_of(found: Found, packing: Packing) -> str:
    """Of all that decides the packed files: which images, and how they are packed."""
    how = [FORMAT_VERSION, packing.images_per_file, packing.short_side, packing.quality, found.classes]
    digest = hashlib.sha256(json.dumps(how).encode())
    for split, images in found.splits.items():
        digest.update(split.encode())
        for image in images:
            digest.update(repr(tuple(image)).encode())
    return digest.hexdigest()


@contextmanager
def _working_folder(folder: Path, source: str) -> Iterator[Path]:
    """Where files are packed, beside the folder to be made, with what an earlier attempt at the same source has done.

    Raises:
        UserError: another process is at it.
    """
    working = folder.with_name(f".{folder.name}-packing")
    if not working.exists() and _is_packed(folder, source):
        folder.rename(working)  # only what is shown of its images changes
    with held(working):
        if not _is_from(working, source):
            for path in working.iterdir():
                path.unlink()
            write_atomically(working / SOURCE, source.encode())
        yield working


def _is_from(folder: Path, source: str) -> bool:
    path = folder / SOURCE
    return path.exists() and path.read_text() == source


def _is_packed(folder: Path, source: str) -> bool:
    """Whether all files are there, from this source."""
    path = folder / FACTS
    return (
        _is_from(folder, source)
        and path.exists()
        and all((folder / name).exists() for name in json.loads(path.read_text())["sha256"])
    )


def _parts(split: str, images: list[ImageFile], images_per_file: int) -> list[Part]:
    starts = range(0, len(images), images_per_file)
    return [
        Part(packed_file(split, number), images[start : start + images_per_file]) for number, start in enumerate(starts)
    ]


def _pack_all(working: Path, parts: list[Part], packing: Packing) -> None:
    """Pack what an earlier attempt has not, on all CPUs; a line for each file that is done.

    Raises:
        UserError: as `pack` says.
    """
    total = sum(len(part.images) for part in parts)
    waiting = [part for part in parts if not (working / part.report).exists()]
    done = total - sum(len(part.images) for part in waiting)
    if done:
        print(f"{done:,} of {total:,} images are packed already", flush=True)
    unreadable: list[Unreadable] = []
    workers = max(1, min(usable_cpus(), len(waiting)))
    pool = ProcessPoolExecutor(workers, get_context("fork"), initializer=_become_worker, initargs=(os.getpid(),))
    try:
        futures = {pool.submit(_pack_part, working, part, packing): part for part in waiting}
        for future in as_completed(futures):
            unreadable += future.result()
            done += len(futures[future].images)
            print(f"{done:,} of {total:,} images", flush=True)
    except BrokenProcessPool:
        raise UserError(f"{working}: a process was ended by force, perhaps for lack of memory; {AGAIN}") from None
    except OSError as error:
        raise UserError(f"{working}: {error}; {AGAIN}") from None
    finally:
        pool.shutdown(cancel_futures=True)
    if unreadable:
        named = "".join(f"\n{name}: {why}" for name, why in sorted(unreadable))
        raise UserError(
            f"{len(unreadable):,} of {total:,} images can't be read; copy these again, or take them out of the folder{named}"
        )


def _become_worker(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a word: the parent has one
    die_with_parent(parent=parent)


def _pack_part(working: Path, part: Part, packing: Packing) -> list[Unreadable]:
    """Pack one file and, last, write its report; or, where an image can't be read, neither. Returns those images."""
    unreadable: list[Unreadable] = []
    sizes: list[int] = []
    values = np.zeros((3, 256), np.int64)
    digest = hashlib.sha256()
    try:
        with whole_file(working / part.name) as file:
            for image in part.images:
                try:
                    content, counted = packed(image.read(), packing)
                except Exception as error:  # noqa: BLE001 - a broken image may lead a decoder to anything
                    unreadable.append((image.name, f"{type(error).__name__}: {error}"))
                    continue
                values += counted
                sizes.append(len(content))
                digest.update(content)
                file.write(content)
            if unreadable:
                raise NotAllReadable
    except NotAllReadable:
        return unreadable
    report = {"sizes": sizes, "values": values.tolist(), "sha256": digest.hexdigest()}
    write_atomically(working / part.report, json.dumps(report).encode())
    return []


def packed(content: bytes, packing: Packing) -> tuple[bytes, np.ndarray]:
    """(the image as it is stored, how often each value is in it: (3, 256)). What is stored can be decoded."""
    from PIL import Image

    if packing.short_side is not None and min(size_of(content)) > packing.short_side:
        buffer = io.BytesIO()
        shrunk(content, packing.short_side).save(buffer, "JPEG", quality=packing.quality)
        content = buffer.getvalue()
    return content, np.reshape(Image.fromarray(decoded(content)).histogram(), (3, 256))


def _finish(working: Path, classes: list[str], parts: dict[str, list[Part]]) -> dict[str, Any]:
    """Write the index of what is packed; returns what the manifest says of it."""
    sha256: dict[str, str] = {}
    values: dict[str, np.ndarray] = {}
    for split, of_split in parts.items():
        reports = [json.loads((working / part.report).read_text()) for part in of_split]
        np.save(working / f"{split}-spans.npy", np.concatenate([_spans(report["sizes"]) for report in reports]))
        labels = [image.label for part in of_split for image in part.images]
        np.save(working / f"{split}-labels.npy", np.array(labels, np.int64))
        sha256 |= {part.name: report["sha256"] for part, report in zip(of_split, reports, strict=True)}
        values[split] = np.sum([report["values"] for report in reports], axis=0)
    names = "".join(f"{name}\n" for name in classes)
    (working / CLASSES).write_bytes(os.fsencode(names))  # a name is whatever bytes a folder's is
    sha256 |= {path.name: sha256_of(path) for path in sorted([*working.glob("*.npy"), working / CLASSES])}
    mean, std = moments(list(values["train"]))
    return {"mean": mean, "std": std, "sha256": sha256}


def _spans(sizes: list[int]) -> np.ndarray:
    """Sizes of successive images -> (n, 2): first byte and size of each."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return np.stack([ends - sizes, np.array(sizes, np.int64)], axis=1)
