"""A prepared dataset: uint8 arrays that every rank maps into memory, and a manifest that says what they are.

Memory-mapped pages are shared by all ranks of a node, so a rank's own memory does not grow with the dataset.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dpscale.errors import UserError

# 1: first format
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a prepared folder holds. Images are (n, channels, height, width) uint8, labels (n,) int64."""

    format_version: int
    dataset: str
    classes: list[str]
    counts: dict[str, int]  # split -> samples
    sample_shape: list[int]
    mean: list[float]  # per channel over the training images, of values in [0, 1]
    std: list[float]
    sha256: dict[str, str]  # file -> digest


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_prepared(folder: Path, dataset: str, classes: tuple[str, ...], splits: dict) -> Manifest:
    """Write the arrays and, last, the manifest. The folder appears under its name only when it is whole.

    Raises:
        UserError: images and labels differ in number, or a label is not a class.
    """
    for split, (images, labels) in splits.items():
        if len(images) != len(labels):
            raise UserError(f"{dataset}: {len(images)} {split} images but {len(labels)} labels")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise UserError(
                f"{dataset}: {split} labels reach from {labels.min()} to {labels.max()}, not within 0 to {len(classes) - 1}"
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for split, (images, labels) in splits.items():
            np.save(temporary / f"{split}-images.npy", images)
            np.save(temporary / f"{split}-labels.npy", labels)
        images = splits["train"][0]
        counts = [np.bincount(images[:, channel].reshape(-1), minlength=256) for channel in range(images.shape[1])]
        values = np.arange(256) / 255
        mean = [float(np.average(values, weights=count)) for count in counts]
        std = [
            float(np.sqrt(np.average((values - m) ** 2, weights=count))) for m, count in zip(mean, counts, strict=True)
        ]
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            dataset=dataset,
            classes=list(classes),
            counts={split: len(labels) for split, (_, labels) in splits.items()},
            sample_shape=list(images.shape[1:]),
            mean=mean,
            std=std,
            sha256={path.name: sha256_of(path) for path in sorted(temporary.iterdir())},
        )
        (temporary / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1, allow_nan=False) + "\n")
        temporary.chmod(0o755)  # mkdtemp's folder is for its maker alone; datasets are shared
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Raises UserError: there is none, or it is not one of this version."""
    path = folder / MANIFEST
    try:
        manifest = Manifest(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path}: no prepared dataset ({error}); make it: snakemake prepare") from None
    if manifest.format_version != FORMAT_VERSION:
        raise UserError(f"{path}: format {manifest.format_version}, this code reads {FORMAT_VERSION}; delete {folder}")
    return manifest


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


def open_split(folder: Path, split: str, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a split, its first `limit` samples, mapped into memory.

    Raises:
        UserError: a file is missing, cut, or not as long as the manifest says.
    """
    manifest = read_manifest(folder)
    arrays = []
    for kind in ("images", "labels"):
        path = folder / f"{split}-{kind}.npy"
        try:
            array = np.load(path, mmap_mode="c")  # "c": private pages; torch warns about arrays that can't be written
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{path}: {error}; delete {folder} and run snakemake prepare") from None
        if len(array) != manifest.counts[split]:
            raise UserError(
                f"{path}: {len(array)} samples, the manifest says {manifest.counts[split]}; delete {folder}"
            )
        arrays.append(array if limit is None else array[:limit])
    return arrays[0], arrays[1]
