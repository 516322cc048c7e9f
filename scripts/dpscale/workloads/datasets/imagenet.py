"""ImageNet of ILSVRC 2012 (Russakovsky et al., "ImageNet large scale visual recognition challenge", 2015)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.image_folder import SETTINGS, packed_as_asked, samples_of
from dpscale.workloads.datasets.settings import DatasetConfig

if TYPE_CHECKING:
    from dpscale.workloads.prepared import Manifest

CLASSES = 1000
COUNTS = {"train": 1_281_167, "test": 50_000}


def is_whole(config: DatasetConfig) -> bool:
    return config.classes in (None, CLASSES)


def _pack(name: str, config: DatasetConfig, folder: Path) -> Manifest:
    from dpscale.workloads.ilsvrc import find

    found = find(Path(config.source or ""), config.classes or CLASSES, COUNTS if is_whole(config) else None, name)
    return packed_as_asked(folder, name, found, config)


ROW = Dataset(
    summary="ImageNet of ILSVRC 2012, from your own archives or what you have unpacked",
    settings=SETTINGS,
    samples=lambda config: samples_of(config, config.classes or CLASSES),
    counts=lambda config: (COUNTS["train"], COUNTS["test"]) if is_whole(config) else None,
    pack=_pack,
)
