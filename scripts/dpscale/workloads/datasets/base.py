"""What a dataset is: its samples, and how to make their arrays."""

from collections.abc import Callable
from dataclasses import dataclass

from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.samples import Samples, Split


def as_many_as_asked(config: DatasetConfig) -> tuple[int, int]:
    """(train, test) samples of a dataset that can be made in any number."""
    return config.train_samples or 10_000, config.test_samples or 2_000


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One row of DATASETS. What it says of its samples is known without reading a file."""

    summary: str
    settings: tuple[str, ...] = ()  # keys of DatasetConfig that it reads; `source` is required where it is one
    samples: Callable[[DatasetConfig], Samples]
    counts: Callable[[DatasetConfig], tuple[int, int]]  # (train, test)
    read: Callable[[DatasetConfig], dict[str, Split]]  # {"train": ..., "test": ...}
