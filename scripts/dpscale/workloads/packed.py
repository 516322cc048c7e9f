"""Packed images as batches: read at their place, decoded, and cut to size.

Files are read and not mapped: what a rank has read stays in the kernel's cache, which all ranks of a node share, and
not in the rank's resident set, which would grow with the dataset. A file that was cut is an error and no SIGBUS.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset

from dpscale.errors import UserError
from dpscale.workloads.images import central_box, random_box, seen
from dpscale.workloads.prepared import check_limit, packed_file, read_manifest
from dpscale.workloads.samples import Rows


class PackedImages(TorchDataset):
    """A whole batch per access. What is random about an image depends on the seed, the epoch and its place alone: it is
    the same for any number of ranks and workers."""

    def __init__(self, folder: Path, split: str, limit: int | None = None, seed: int = 0) -> None:
        """With `limit`, that many samples evenly spaced over the split, which is in the order of its classes.

        Raises:
            UserError: a file is missing or cut, or there are fewer samples than `limit`.
        """
        manifest = read_manifest(folder)
        assert manifest.packing is not None, folder
        self.folder, self.split, self.seed = folder, split, seed
        self.side = manifest.sample_shape[-1]
        self.images_per_file = manifest.packing.images_per_file
        self.at_random = manifest.packing.augment and split == "train"
        self.count, self.used = manifest.counts[split], check_limit(manifest, split, limit)
        self.spans, self.labels = (_index(folder / f"{split}-{name}.npy", self.count) for name in ("spans", "labels"))
        self.descriptors: dict[int, int] = {}  # of the files that have been read from, open as long as the rank lives
        self._check_sizes()

    def __len__(self) -> int:
        return self.used

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "descriptors": {}}  # they mean nothing in a worker that was not forked

    def __getitem__(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Images (b, 3, side, side) uint8 in channels-last memory, labels (b,) int64.

        Raises:
            UserError: an image can't be read or decoded.
        """
        epoch, indices = rows
        places = indices * self.count // self.used
        images = torch.empty(
            (len(places), 3, self.side, self.side), dtype=torch.uint8, memory_format=torch.channels_last
        )
        for image, place in zip(images, places.tolist(), strict=True):
            image.copy_(self._seen(epoch, place))
        return images, torch.from_numpy(np.array(self.labels[places]))

    def encoded(self, place: int) -> bytes:
        """An image as it is stored, by its place in the whole split. Raises OSError: it can't be read."""
        number = place // self.images_per_file
        if number not in self.descriptors:
            self.descriptors[number] = os.open(self.folder / packed_file(self.split, number), os.O_RDONLY)
        start, size = self.spans[place].tolist()
        return os.pread(self.descriptors[number], size, start)

    def _seen(self, epoch: int, place: int) -> torch.Tensor:
        generator = np.random.default_rng((self.seed, epoch, place)) if self.at_random else None
        choose = central_box if generator is None else partial(random_box, generator=generator)
        try:
            image = seen(self.encoded(place), choose, self.side)
        except Exception as error:
            path = self.folder / packed_file(self.split, place // self.images_per_file)
            raise UserError(
                f"{path}: {self.split} image {place} can't be read ({error}); delete {self.folder} and run snakemake prepare"
            ) from error
        return image if generator is None or generator.random() < 0.5 else image.flip(-1)

    def _check_sizes(self) -> None:
        for first in range(0, self.count, self.images_per_file):
            last = min(first + self.images_per_file, self.count) - 1
            path = self.folder / packed_file(self.split, first // self.images_per_file)
            expected, size = int(self.spans[last].sum()), path.stat().st_size if path.exists() else None
            if size != expected:
                found = "missing" if size is None else f"{size} bytes"
                raise UserError(f"{path}: {found}, {expected} expected; delete {self.folder} and run snakemake prepare")


def _index(path: Path, count: int) -> np.ndarray:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: {error}; delete {path.parent} and run snakemake prepare") from None
    if len(array) != count:
        raise UserError(f"{path}: {len(array)} samples, the manifest says {count}; delete {path.parent}")
    return array
