"""A folder of the user's own images: train/<class>/ and val/<class>/ or test/<class>/, as torchvision's ImageFolder has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    from dpscale.workloads.image_files import Found
    from dpscale.workloads.prepared import Manifest

SETTINGS = ("source", "classes", "crop", "augment", "short_side", "quality")
DEFAULT_CROP = 224
DEFAULT_QUALITY = 90


def samples_of(config: DatasetConfig, classes: int) -> Samples:
    crop = config.crop or DEFAULT_CROP
    return Samples("images", (3, crop, crop), classes)


def packed_as_asked(folder: Path, dataset: str, found: Found, config: DatasetConfig) -> Manifest:
    # inside: it is read where nothing is packed, and what it imports is in the digest of these datasets alone
    from dpscale.workloads.packing import IMAGES_PER_FILE, pack
    from dpscale.workloads.prepared import Packing

    packing = Packing(
        images_per_file=IMAGES_PER_FILE,
        short_side=config.short_side,
        quality=None if config.short_side is None else config.quality or DEFAULT_QUALITY,
        augment=config.augment is not False,
    )
    return pack(folder, dataset, samples_of(config, len(found.classes)).shape, found, packing)


def _pack(name: str, config: DatasetConfig, folder: Path) -> Manifest:
    from dpscale.workloads.image_files import find

    return packed_as_asked(folder, name, find(Path(config.source or ""), config.classes, name), config)


ROW = Dataset(
    summary="your own images: folders train and val (or test) with a folder for each class",
    settings=SETTINGS,
    samples=lambda config: samples_of(config, config.classes or 2),  # as found: no model refuses a number of them
    counts=lambda config: None,
    pack=_pack,
)
