"""CIFAR-10 and CIFAR-100, from their binary version: the one for Python is a pickle, which can run anything.

https://www.cs.toronto.edu/~kriz/cifar.html: a record is one byte for the label (CIFAR-100: two, coarse and fine) and
3 x 32 x 32 bytes, the image's rows of red, then green, then blue.
"""

import math
from dataclasses import dataclass

import numpy as np

from dpscale.errors import UserError
from dpscale.workloads.datasets.base import Dataset, Published
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.datasets.sources import File, read_files
from dpscale.workloads.samples import Samples, Split

COUNTS = {"train": 50_000, "test": 10_000}
SHAPE = (3, 32, 32)


@dataclass(frozen=True, kw_only=True)
class Binary:
    """A binary version: its archive, the files of each split in it, and their records."""

    archive: str
    files: dict[str, tuple[str, ...]]
    label_bytes: int  # of which the last is the label
    classes: int

    def read(self, config: DatasetConfig) -> dict[str, Split]:
        files = read_files(config.source, [name for names in self.files.values() for name in names], self.archive)
        splits = {}
        for split, names in self.files.items():
            parts = [self.records(files[name], COUNTS[split] // len(names)) for name in names]
            images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            splits[split] = images.reshape(-1, *SHAPE), labels.astype(np.int64)
        return splits

    def records(self, file: File, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (count, 3072) and labels (count,) of one file.

        Raises:
            UserError: it is of another length, or a label is no class.
        """
        size = self.label_bytes + math.prod(SHAPE)
        if len(file.content) != count * size:
            raise UserError(
                f"{file.place}: {len(file.content)} bytes; {count} images with their labels are {count * size}; copy it again"
            )
        records = np.frombuffer(file.content, np.uint8).reshape(count, size)
        labels = records[:, self.label_bytes - 1]
        if labels.max() >= self.classes:
            raise UserError(
                f"{file.place}: label {labels.max()} at image {labels.argmax()}, of {self.classes} classes; copy it again"
            )
        return records[:, self.label_bytes :], labels


def _row(summary: str, binary: Binary, sha256: str, *more_mirrors: str) -> Dataset:
    return Dataset(
        summary=summary,
        settings=("source", "mirrors"),
        published=Published(
            sha256={binary.archive: sha256}, mirrors=("https://www.cs.toronto.edu/~kriz/", *more_mirrors)
        ),
        samples=lambda config: Samples("images", SHAPE, binary.classes),
        counts=lambda config: (COUNTS["train"], COUNTS["test"]),
        read=binary.read,
    )


MINDSPORE = "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/"
CIFAR10 = _row(
    "50,000 + 10,000 colour photographs of 10 kinds of things",
    Binary(
        archive="cifar-10-binary.tar.gz",
        files={"train": tuple(f"data_batch_{part}.bin" for part in range(1, 6)), "test": ("test_batch.bin",)},
        label_bytes=1,
        classes=10,
    ),
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    MINDSPORE,
    "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
)
CIFAR100 = _row(
    "50,000 + 10,000 colour photographs of 100 kinds of things",
    Binary(
        archive="cifar-100-binary.tar.gz",
        files={"train": ("train.bin",), "test": ("test.bin",)},
        label_bytes=2,
        classes=100,
    ),
    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    MINDSPORE,
)
