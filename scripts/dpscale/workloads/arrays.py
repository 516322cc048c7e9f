"""Datasets as arrays of small integers, which every rank maps into memory.

Memory-mapped pages are shared by all ranks of a node, so a rank's own memory does not grow with the dataset.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from dpscale.errors import UserError
from dpscale.files import sha256_of
from dpscale.workloads.prepared import (
    FORMAT_VERSION,
    Manifest,
    check_limit,
    held,
    moments,
    put_in_place,
    read_manifest,
)
from dpscale.workloads.samples import Kind, Samples, Split


def write_prepared(folder: Path, dataset: str, classes: int, splits: dict[str, Split]) -> Manifest:
    """Write the arrays and, last, the manifest. The folder appears under its name only when it is whole.

    Raises:
        UserError: the arrays are neither images nor tokens with their labels, or a label is not a class.
    """
    samples = _samples_of(dataset, classes, splits)
    working = folder.with_name(f".{folder.name}-making")
    with held(working):
        for path in working.iterdir():  # of a process that was killed
            path.unlink()
        try:
            for split, (inputs, labels) in splits.items():
                np.save(working / f"{split}-{samples.kind}.npy", inputs)
                np.save(working / f"{split}-labels.npy", labels)
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
                packing=None,
                sha256={path.name: sha256_of(path) for path in sorted(working.iterdir())},
            )
            manifest.write(working)
            put_in_place(working, folder)
        finally:
            shutil.rmtree(working, ignore_errors=True)
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
    return moments([np.bincount(images[:, channel].reshape(-1), minlength=256) for channel in range(images.shape[1])])


def open_split(folder: Path, split: str, limit: int | None = None) -> Split:
    """Inputs and labels of a split, its first `limit` samples, mapped into memory.

    Raises:
        UserError: a file is missing, cut, or not as long as the manifest says; or there are fewer samples than `limit`.
    """
    manifest = read_manifest(folder)
    count, used = manifest.counts[split], check_limit(manifest, split, limit)
    arrays = []
    for name in (manifest.kind, "labels"):
        path = folder / f"{split}-{name}.npy"
        try:
            # "c": private pages; torch warns about arrays that can't be written
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{path}: {error}; delete {folder} and run snakemake prepare") from None
        if len(array) != count:
            raise UserError(f"{path}: {len(array)} samples, the manifest says {count}; delete {folder}")
        arrays.append(array[:used])
    return arrays[0], arrays[1]
