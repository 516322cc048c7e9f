"""A folder of the user's own images: train/<class>/ and val/<class>/ or test/<class>/, as torchvision's ImageFolder has them."""

from __future__ import annotations

from pathlib import Path

from dpscale.errors import UserError
from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.image_files import ImageFile, class_folders, in_class_folders
from dpscale.workloads.packing import IMAGES_PER_FILE, pack
from dpscale.workloads.prepared import Manifest, Packing
from dpscale.workloads.samples import Samples

SETTINGS = ("source", "classes", "crop", "augment", "short_side", "quality")
TEST_FOLDERS = ("val", "test")
DEFAULT_CROP = 224
DEFAULT_QUALITY = 90
FEWEST_CLASSES = 2


def samples_of(config: DatasetConfig, classes: int) -> Samples:
    crop = config.crop or DEFAULT_CROP
    return Samples("images", (3, crop, crop), classes)


def pack_as_asked(
    folder: Path, dataset: str, classes: list[str], splits: dict[str, list[ImageFile]], config: DatasetConfig
) -> Manifest:
    packing = Packing(
        images_per_file=IMAGES_PER_FILE,
        short_side=config.short_side,
        quality=None if config.short_side is None else config.quality or DEFAULT_QUALITY,
        augment=config.augment is not False,
    )
    return pack(folder, dataset, samples_of(config, len(classes)).shape, classes, splits, packing)


def find(config: DatasetConfig) -> tuple[list[str], dict[str, list[ImageFile]]]:
    """(classes, images of each split). Raises UserError: the folders are not as above, or their classes differ."""
    source = Path(config.source or "")
    test = next((source / name for name in TEST_FOLDERS if (source / name).is_dir()), None)
    if not (source / "train").is_dir() or test is None:
        raise UserError(
            f"{source.absolute()}: needs train/<class>/ and val/<class>/ or test/<class>/ with images; datasets.image_folder."
            "source is the folder above them"
        )
    classes = class_folders(source / "train")
    if config.classes not in (None, len(classes)):
        raise UserError(
            f"{source / 'train'}: {len(classes)} class folders, but datasets.image_folder.classes = {config.classes}; make "
            "them agree, or leave the key out"
        )
    if len(classes) < FEWEST_CLASSES:
        raise UserError(f"{source / 'train'}: only one class, {classes[0]}; there is nothing to tell apart")
    return classes, {"train": in_class_folders(source / "train", classes), "test": in_class_folders(test, classes)}


def _pack(config: DatasetConfig, folder: Path) -> Manifest:
    classes, splits = find(config)
    return pack_as_asked(folder, "image_folder", classes, splits, config)


ROW = Dataset(
    summary="a folder of your own images: train/<class>/ and val/<class>/ or test/<class>/",
    settings=SETTINGS,
    # classes are those of the folder: no row of MODELS refuses a number of them
    samples=lambda config: samples_of(config, config.classes or FEWEST_CLASSES),
    counts=lambda config: None,
    pack=_pack,
)
