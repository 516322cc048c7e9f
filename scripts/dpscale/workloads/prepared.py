"""A prepared dataset: a folder that is made once, before any rank starts, and a manifest that says what it holds.

Two storages: arrays of small integers (arrays.py), and encoded images packed into large files (packing.py, packed.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dpscale.errors import UserError
from dpscale.files import sha256_of
from dpscale.workloads.samples import Kind, Samples

# 1: first format
# 2: tokens beside images; the number of classes instead of their names
# 3: packed images beside arrays
FORMAT_VERSION = 3
MANIFEST = "manifest.json"
SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Packing:
    """How images are packed, and how they are shown."""

    images_per_file: int
    short_side: int | None  # larger images were resized to it and encoded again; None: all keep their bytes
    quality: int | None  # of those JPEGs
    augment: bool  # training images are cropped and flipped at random


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a prepared folder holds: `<split>-<kind>.npy` and `<split>-labels.npy`, as samples.py describes them, or
    packed images, as packing.py does."""

    format_version: int
    dataset: str
    kind: Kind
    sample_shape: list[int]
    classes: int  # of tokens: the vocabulary
    counts: dict[str, int]  # split -> samples
    mean: list[float]  # per channel over the training images, of values in [0, 1]; tokens have none
    std: list[float]
    packing: Packing | None  # None: arrays
    sha256: dict[str, str]  # file -> digest

    @property
    def samples(self) -> Samples:
        return Samples(self.kind, tuple(self.sample_shape), self.classes)

    def write(self, folder: Path) -> None:
        (folder / MANIFEST).write_text(json.dumps(asdict(self), indent=1, allow_nan=False) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Raises UserError: there is none, or it is not one of this version."""
    path, manifest = folder / MANIFEST, None
    try:
        fields = json.loads(path.read_text())
        version = fields["format_version"]
        if version == FORMAT_VERSION:
            packing = fields["packing"]
            manifest = Manifest(**{**fields, "packing": None if packing is None else Packing(**packing)})
    except (OSError, ValueError, TypeError, KeyError) as error:
        remedy = f"delete {folder} and run snakemake prepare" if path.exists() else "make it: snakemake prepare"
        raise UserError(f"{path}: no prepared dataset ({error}); {remedy}") from None
    if manifest is None:
        raise UserError(f"{path}: format {version}, this code reads {FORMAT_VERSION}; delete {folder}")
    return manifest


def packed_file(split: str, number: int) -> str:
    return f"{split}-{number:05}.images"


@contextmanager
def held(working: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if it is not there.

    Raises:
        UserError: another one is at it.
    """
    working.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(working, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"{working}: another process is preparing this dataset; wait for it, or end it") from None
    finally:
        os.close(descriptor)


def put_in_place(made: Path, folder: Path) -> None:
    """Give a whole folder its name; one of that name from before goes."""
    made.chmod(0o755)  # whatever the maker's umask is: datasets are shared
    shutil.rmtree(folder, ignore_errors=True)
    made.rename(folder)


def moments(counts: Sequence[np.ndarray]) -> tuple[list[float], list[float]]:
    """(mean, standard deviation) of each channel, of values in [0, 1]; `counts` says how often each of 0 to 255 is there."""
    values = np.arange(256) / 255
    mean = [float(np.average(values, weights=count)) for count in counts]
    std = [float(np.sqrt(np.average((values - m) ** 2, weights=count))) for m, count in zip(mean, counts, strict=True)]
    return mean, std


def check_limit(manifest: Manifest, split: str, limit: int | None) -> int:
    """How many samples are used. Raises UserError: there are fewer than `limit`."""
    count = manifest.counts[split]
    if limit is not None and limit > count:
        raise UserError(f"workload.{split}_samples = {limit}: {manifest.dataset} has {count}; use at most that")
    return count if limit is None else limit


def staged(folder: Path, node_local: Path) -> Path:
    """A copy of a prepared folder on this node's own disk, made by the first process that asks; the others wait for it.

    Its name holds the manifest's digest: a dataset that was prepared anew is another one.
    """
    read_manifest(folder)
    node_local.mkdir(parents=True, exist_ok=True)
    copy = node_local / f"{folder.name}-{sha256_of(folder / MANIFEST)[:16]}"
    with (node_local / f".{copy.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not copy.exists():
            with tempfile.TemporaryDirectory(dir=node_local) as temporary:
                shutil.copytree(folder, Path(temporary, copy.name))
                Path(temporary, copy.name).rename(copy)
    return copy
