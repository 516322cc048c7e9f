"""Noise around one random pattern per class: any number of images of any shape, and a loss that falls."""

import math

import numpy as np

from dpscale.workloads.datasets.base import Dataset, as_many_as_asked
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.samples import Samples, Split

BLOCK = 4096 * 28 * 28  # values at a time: the noise of a million samples would not fit


def _samples(config: DatasetConfig) -> Samples:
    return Samples("images", tuple(config.sample_shape or (1, 28, 28)), config.classes or 10)


def _read(config: DatasetConfig) -> dict[str, Split]:
    made = _samples(config)
    generator = np.random.default_rng(0)
    patterns = np.stack([generator.integers(64, 192, made.shape).astype(np.uint8) for _ in range(made.classes)])
    block_size = max(1, BLOCK // math.prod(made.shape))

    def split(count: int) -> Split:
        labels = generator.integers(0, made.classes, count)
        images = np.empty((count, *made.shape), np.uint8)
        for start in range(0, count, block_size):
            block = patterns[labels[start : start + block_size]]
            images[start : start + block_size] = np.clip(block + generator.normal(0, 48, block.shape), 0, 255)
        return images, labels

    train, test = as_many_as_asked(config)
    return {"train": split(train), "test": split(test)}


ROW = Dataset(
    summary="noise around one pattern per class, as many images as the config asks for, of any shape",
    settings=("train_samples", "test_samples", "sample_shape", "classes"),
    samples=_samples,
    counts=as_many_as_asked,
    read=_read,
)
