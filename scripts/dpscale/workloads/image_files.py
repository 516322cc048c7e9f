"""Encoded images where they lie: files in folders of classes, or members of a tar."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from dpscale.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")  # as torchvision's ImageFolder
TEST_FOLDERS = ("val", "test")
NAMES_SHOWN = 5


class ImageFile(NamedTuple):
    """One encoded image and the class that it shows."""

    label: int
    path: str
    start: int = 0
    size: int | None = None  # bytes; None: to the end of the file
    member: str | None = None  # of the archive `path`

    @property
    def name(self) -> str:
        return self.path if self.member is None else f"{self.path}: {self.member}"

    def read(self) -> bytes:
        """Raises OSError: it can't be read, or ends too early."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            content = file.read() if self.size is None else file.read(self.size)
        if self.size is not None and len(content) < self.size:
            raise OSError(f"the archive ends after {len(content)} of its {self.size} bytes")
        return content


class Found(NamedTuple):
    """The images of a dataset."""

    classes: list[str]  # in the order of their labels, which is that of their names
    splits: dict[str, list[ImageFile]]


def find(source: Path, expected: int | None) -> Found:
    """The images in train/<class>/ and val/<class>/ or test/<class>/.

    Args:
        expected: how many classes there are; None: as many as there are.

    Raises:
        UserError: the folders are not as above, their classes differ, or there are others than expected.
    """
    train, test = source / "train", next((source / name for name in TEST_FOLDERS if (source / name).is_dir()), None)
    if not train.is_dir() or test is None:
        raise UserError(
            f"datasets.image_folder.source = {str(source)!r}: needs train/<class>/ and val/<class>/ or test/<class>/ with "
            "images; give the folder above them"
        )
    classes = class_folders(train)
    if expected not in (None, len(classes)):
        raise UserError(
            f"{train}: {len(classes)} class folders, but datasets.image_folder.classes = {expected}; make them agree, or "
            "leave the key out"
        )
    if len(classes) == 1:
        raise UserError(f"{train}: one class, {classes[0]}; give it two or more, or there is nothing to tell apart")
    return Found(classes, {"train": in_class_folders(train, classes), "test": in_class_folders(test, classes)})


def is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def class_folders(folder: Path) -> list[str]:
    """Names of classes in the order of their labels. Raises UserError: there is no folder of a class."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise UserError(f"{folder}: has no folders; give each class one that holds its images")
    return names


def in_class_folders(folder: Path, classes: list[str]) -> list[ImageFile]:
    """Every image at any depth below the folders of these classes, by class and path, as torchvision's ImageFolder has them.

    Raises:
        UserError: its class folders are others, or one has no image.
    """
    check_classes(str(folder), class_folders(folder), classes)
    images = []
    for label, name in enumerate(classes):
        of_class = sorted(
            os.path.join(place, file)
            for place, _, files in os.walk(folder / name, followlinks=True)
            for file in files
            if is_image(file)
        )
        if not of_class:
            raise UserError(f"{folder / name}: holds no image ({', '.join(SUFFIXES)}); add some, or remove the folder")
        images += [ImageFile(label, path) for path in of_class]
    return images


def check_classes(place: str, found: Collection[str], classes: Collection[str]) -> None:
    """Raises UserError: the names of classes that were found there are others than those of the training images."""
    missing, more = sorted(set(classes) - set(found)), sorted(set(found) - set(classes))
    if missing or more:
        differences = [
            f"{text} {', '.join(names[:NAMES_SHOWN])}{' ...' * (len(names) > NAMES_SHOWN)} ({len(names)})"
            for text, names in (("it lacks", missing), ("only there:", more))
            if names
        ]
        raise UserError(
            f"{place}: other classes than the training images have: {'; '.join(differences)}; make them alike"
        )


def members_of(archive: Path, start: int = 0, end: int | None = None) -> Iterator[tuple[str, int, int]]:
    """(name, first byte in the file, size) of each regular file in an uncompressed tar, or in a tar within it.

    Args:
        start: first byte of the tar within.
        end: the byte after its last.

    Raises:
        UserError: it is no tar, or a cut one.
    """
    try:
        with archive.open("rb") as file:
            file.seek(start)
            with tarfile.open(fileobj=file, mode="r:") as tar:
                for member in tar:
                    if end is not None and member.offset_data + member.size > end:
                        raise tarfile.ReadError(f"a tar within it has no end: {member.name}")
                    if member.isfile():
                        yield member.name, member.offset_data, member.size
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"{archive}: not a whole tar ({error}); copy it again") from None
