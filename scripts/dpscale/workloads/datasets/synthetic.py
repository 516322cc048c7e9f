"""Noise around one random pattern per class: any number of samples, and a loss that falls."""

import numpy as np

from dpscale.workloads.datasets.base import Dataset, Split
from dpscale.workloads.datasets.settings import DatasetConfig

CLASSES = 10
SHAPE = (1, 28, 28)


def _counts(config: DatasetConfig) -> tuple[int, int]:
    return config.train_samples or 10_000, config.test_samples or 2_000


def _read(config: DatasetConfig) -> dict[str, Split]:
    generator = np.random.default_rng(0)
    patterns = generator.integers(64, 192, (CLASSES, *SHAPE))

    def split(count: int) -> Split:
        labels = generator.integers(0, CLASSES, count)
        images = np.empty((count, *SHAPE), np.uint8)
        for start in range(0, count, 4096):  # in blocks: the noise of a million samples would not fit
            block = patterns[labels[start : start + 4096]]
            images[start : start + 4096] = np.clip(block + generator.normal(0, 48, block.shape), 0, 255)
        return images, labels

    train, test = _counts(config)
    return {"train": split(train), "test": split(test)}


ROW = Dataset(
    summary="noise around one pattern per class, as many samples as the config asks for",
    sample_shape=SHAPE,
    classes=tuple(str(label) for label in range(CLASSES)),
    counts=_counts,
    needs_source=False,
    read=_read,
)
