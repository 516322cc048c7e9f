"""A prepared dataset: arrays of small integers that every rank maps into memory, and a manifest that says what they are.

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
from dpscale.workloads.samples import Kind, Samples, Split

# 1: first format
# 2: tokens beside images; the number of classes instead of their names
FORMAT_VERSION = 2
MANIFEST = "manifest.json"
SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a prepared folder holds: `<split>-<kind>.npy` and `<split>-labels.npy`, as samples.py describes them."""

    format_version: int
    dataset: str
    kind: Kind
    sample_shape: list[int]
    classes: int  # of tokens: the vocabulary
    counts: dict[str, int]  # split -> samples
    mean: list[float]  # per channel over the training images, of values in [0, 1]; tokens have none
    std: list[float]
    sha256: dict[str, str]  # file -> digest

    @property
    def samples(self) -> Samples:
        return Samples(self.kind, tuple(self.sample_shape), self.classes)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_prepared(folder: Path, dataset: str, classes: int, splits: dict[str, Split]) -> Manifest:
    """Write the arrays and, last, the manifest. The folder appears under its name only when it is whole.

    Raises:
        UserError: the arrays are neither images nor tokens with their labels, or a label is not a class.
    """
    samples = _samples_of(dataset, classes, splits)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for split, (inputs, labels) in splits.items():
            np.save(temporary / f"{split}-{samples.kind}.npy", inputs)
            np.save(temporary / f"{split}-labels.npy", labels)
        mean, std = _moments(splits["train"][0]) if samples.kind == "images" else ([], [])
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            dataset=dataset,
            kind=samples.kind,
            sample_shape=list(samples.shape),
            classes=classes,
            counts={split: len(labels) for split, (_, labels) in splits.items()},
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


def _samples_of(dataset: str, classes: int, splits: dict[str, Split]) -> Samples:
    """What the arrays hold; raises UserError as `write_prepared` says."""
    found = [_samples_in(f"{dataset}: {split}", classes, *arrays) for split, arrays in splits.items()]
    if len(set(found)) > 1:
        raise UserError(f"{dataset}: one split has {found[0]}, another {found[1]}; make their samples alike")
    return found[0]


def _samples_in(place: str, classes: int, inputs: np.ndarray, labels: np.ndarray) -> Samples:
    if len(inputs) != len(labels):
        raise UserError(f"{place} has {len(inputs)} inputs but {len(labels)} labels")
    if inputs.dtype == np.uint8 and labels.dtype.kind in "iu" and (inputs.ndim, labels.ndim) == (4, 1):
        kind: Kind = "images"
    elif inputs.dtype.kind in "iu" and labels.dtype.kind in "iu" and inputs.ndim == 2 and inputs.shape == labels.shape:
        kind = "tokens"
    else:
        raise UserError(
            f"{place} has {inputs.dtype} inputs {inputs.shape} and {labels.dtype} labels {labels.shape}; give images (n, "
            "channels, height, width) uint8 with labels (n,), or tokens (n, context) with labels of the same shape"
        )
    if inputs.size == 0:
        raise UserError(f"{place} is empty; give it at least one sample")
    for name, values in [("labels", labels), *([("tokens", inputs)] if kind == "tokens" else [])]:
        if not 0 <= values.min() <= values.max() < classes:
            raise UserError(
                f"{place} {name} reach from {values.min()} to {values.max()}, not within 0 to {classes - 1}"
            )
    return Samples(kind, inputs.shape[1:], classes)


def _moments(images: np.ndarray) -> tuple[list[float], list[float]]:
    """(mean, standard deviation) of each channel, of values in [0, 1]."""
    counts = [np.bincount(images[:, channel].reshape(-1), minlength=256) for channel in range(images.shape[1])]
    values = np.arange(256) / 255
    mean = [float(np.average(values, weights=count)) for count in counts]
    std = [float(np.sqrt(np.average((values - m) ** 2, weights=count))) for m, count in zip(mean, counts, strict=True)]
    return mean, std


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


def open_split(folder: Path, split: str, limit: int | None = None) -> Split:
    """Inputs and labels of a split, its first `limit` samples, mapped into memory.

    Raises:
        UserError: a file is missing, cut, or not as long as the manifest says; or there are fewer samples than `limit`.
    """
    manifest = read_manifest(folder)
    count = manifest.counts[split]
    if limit is not None and limit > count:
        raise UserError(f"workload.{split}_samples = {limit}: {manifest.dataset} has {count}; use at most that")
    arrays = []
    for name in (manifest.kind, "labels"):
        path = folder / f"{split}-{name}.npy"
        try:
            array = np.load(path, mmap_mode="c")  # "c": private pages; torch warns about arrays that can't be written
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{path}: {error}; delete {folder} and run snakemake prepare") from None
        if len(array) != count:
            raise UserError(f"{path}: {len(array)} samples, the manifest says {count}; delete {folder}")
        arrays.append(array if limit is None else array[:limit])
    return arrays[0], arrays[1]
