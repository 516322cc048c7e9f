"""What a dataset is: how to make its arrays from its files."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpscale.workloads.datasets.settings import DatasetConfig

Split = tuple[np.ndarray, np.ndarray]  # images (n, channels, height, width) uint8, labels (n,) int64


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One row of DATASETS."""

    summary: str
    sample_shape: tuple[int, ...]  # (channels, height, width)
    classes: tuple[str, ...]
    counts: Callable[[DatasetConfig], tuple[int, int]]  # samples (train, test), known without reading a file
    needs_source: bool
    read: Callable[[DatasetConfig], dict[str, Split]]  # {"train": ..., "test": ...}
