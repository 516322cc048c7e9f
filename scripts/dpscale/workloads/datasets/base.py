"""What a dataset is: its samples, and how to make their arrays or to pack their files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.samples import Samples, Split

if TYPE_CHECKING:
    from dpscale.workloads.prepared import Manifest

RECEIPT = "fetched.json"  # beside a dataset's fetched files: what each is, once all are there


def as_many_as_asked(config: DatasetConfig) -> tuple[int, int]:
    """(train, test) samples of a dataset that can be made in any number."""
    return config.train_samples or 10_000, config.test_samples or 2_000


@dataclass(frozen=True, kw_only=True)
class Published:
    """Files that lie in public places, under the same names in each."""

    sha256: dict[str, str]  # file -> digest
    mirrors: tuple[str, ...]  # URLs of folders, with their last slash; the first that has a file is taken


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One row of DATASETS, with `read` or `pack`. What it says of its samples is known without reading a file."""

    summary: str
    settings: tuple[str, ...] = ()  # keys of DatasetConfig that it reads
    published: Published | None = None  # fetched where `source` is not given; without it a `source` is required
    samples: Callable[[DatasetConfig], Samples]
    # (train, test); None: known when it has been prepared, and so are the classes
    counts: Callable[[DatasetConfig], tuple[int, int] | None]
    read: Callable[[DatasetConfig], dict[str, Split]] | None = None  # {"train": ..., "test": ...}
    pack: Callable[[str, DatasetConfig, Path], Manifest] | None = None  # name in the config -> its prepared folder
