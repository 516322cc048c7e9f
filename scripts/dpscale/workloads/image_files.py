"""Encoded images where they lie: files in folders of classes, or members of an archive, which is not unpacked."""

from __future__ import annotations

import os
import tarfile
import zipfile
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, NoReturn

from dpscale.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")  # as torchvision's ImageFolder
TEST_FOLDERS = ("val", "test")
NAMES_SHOWN = 5
# how files begin -> what decompresses them
COMPRESSED = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}


class ImageFile(NamedTuple):
    """One encoded image and the class that it shows."""

    label: int
    path: str
    start: int = 0
    size: int | None = None  # bytes; None: all of the file, or of the member of a zip
    member: str | None = None  # of the archive `path`

    @property
    def name(self) -> str:
        return self.path if self.member is None else f"{self.path}: {self.member}"

    def read(self) -> bytes:
        """Raises OSError or BadZipFile: it can't be read, ends too early, or has another checksum than its zip says."""
        if self.member is not None and self.size is None:
            return _opened_zip(self.path).read(self.member)
        with open(self.path, "rb") as file:
            file.seek(self.start)
            content = file.read() if self.size is None else file.read(self.size)
        if self.size is not None and len(content) < self.size:
            raise OSError(f"the archive ends after {len(content)} of its {self.size} bytes")
        return content


@cache
def _opened_zip(path: str) -> zipfile.ZipFile:
    """Opened once by each process that reads images: its directory may name a million of them."""
    return zipfile.ZipFile(path)


class Found(NamedTuple):
    """The images of a dataset."""

    classes: list[str]  # in the order of their labels, which is that of their names
    splits: dict[str, list[ImageFile]]


def find(source: Path, expected: int | None, dataset: str = "image_folder") -> Found:
    """The images in train/<class>/ and val/<class>/ or test/<class>/ of a folder, or of a tar or zip archive.

    Args:
        expected: how many classes there are; None: as many as there are.
        dataset: its name in the config.

    Raises:
        UserError: the folders are not as above, their classes differ, or there are others than expected; or the archive is
            not whole, or a compressed tar.
    """
    found = _in_archive(source, dataset) if source.is_file() else _in_folders(source, dataset)
    place, classes = f"{source / 'train'}", found.classes
    if expected not in (None, len(classes)):
        raise UserError(
            f"{place}: {len(classes)} class folders, but datasets.{dataset}.classes = {expected}; make them agree, or "
            "leave the key out"
        )
    if len(classes) == 1:
        raise UserError(f"{place}: one class, {classes[0]}; give it two or more, or there is nothing to tell apart")
    return found


def _in_folders(source: Path, dataset: str) -> Found:
    train, test = source / "train", next((source / name for name in TEST_FOLDERS if (source / name).is_dir()), None)
    if not train.is_dir() or test is None:
        raise _other_layout(source, dataset)
    classes = class_folders(train)
    return Found(classes, {"train": in_class_folders(train, classes), "test": in_class_folders(test, classes)})


def _in_archive(source: Path, dataset: str) -> Found:
    """The same of an archive, where all may lie below one folder more."""
    members = [(PurePosixPath(member).parts, image) for member, image in _images_of(source)]
    tops = {parts[0] for parts, _ in members}
    if len(tops) == 1 and "train" not in tops:
        members = [(parts[1:], image) for parts, image in members]
    splits: dict[str, dict[str, list[ImageFile]]] = {}
    for parts, image in members:
        if len(parts) > 2:  # <split>/<class>/.../<image>
            splits.setdefault(parts[0], {}).setdefault(parts[1], []).append(image)
    test = next((name for name in TEST_FOLDERS if name in splits), None)
    if "train" not in splits or test is None:
        raise _other_layout(source, dataset)
    classes = sorted(splits["train"])
    check_classes(f"{source}: {test}", splits[test], classes)
    return Found(
        classes,
        {
            split: [
                image._replace(label=label)
                for label, name in enumerate(classes)
                for image in sorted(splits[folder][name], key=lambda image: image.name)
            ]
            for split, folder in (("train", "train"), ("test", test))
        },
    )


def _images_of(archive: Path) -> Iterator[tuple[str, ImageFile]]:
    """(name, image) of each member that is one by its name; its label is yet to be found."""
    members: Iterable[tuple[str, ImageFile]]
    if zipfile.is_zipfile(archive):
        members = ((name, ImageFile(-1, str(archive), member=name)) for name in _names_in_zip(archive))
    else:
        _refuse_other_than_tar(archive)
        members = ((name, ImageFile(-1, str(archive), start, size, name)) for name, start, size in members_of(archive))
    return ((name, image) for name, image in members if is_image(PurePosixPath(name).name))


def _names_in_zip(archive: Path) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{archive}: not a whole zip archive ({error}); copy it again") from None


def _refuse_other_than_tar(archive: Path) -> None:
    """Raises UserError: it is no tar, or a compressed one, no image of which can be read without all that comes before it."""
    with archive.open("rb") as file:
        begins = file.read(max(map(len, COMPRESSED)))
    for magic, program in COMPRESSED.items():
        if begins.startswith(magic):
            raise UserError(
                f"{archive}: compressed, so that no image of it can be read by itself; decompress it ({program}), or unpack it"
            )
    if not tarfile.is_tarfile(archive):
        raise UserError(
            f"{archive}: neither a folder nor a whole tar or zip archive; copy it again, or name another source"
        )


def _other_layout(source: Path, dataset: str) -> UserError:
    return UserError(
        f"datasets.{dataset}.source = {str(source)!r}: needs train/<class>/ and val/<class>/ or test/<class>/ with "
        "images; give the folder above them, or a tar or zip archive of it"
    )


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
        of_class = _images_below(folder / name)
        if not of_class:
            raise UserError(f"{folder / name}: holds no image ({', '.join(SUFFIXES)}); add some, or remove the folder")
        images += [ImageFile(label, path) for path in of_class]
    return images


def _images_below(folder: Path) -> list[str]:
    """Paths of images at any depth, in torchvision's order; folders behind links are theirs too.

    Raises:
        UserError: a link leads to a folder that it lies in, so that there is no end of depth.
        OSError: a folder can't be read.
    """
    images: dict[str, list[str]] = {}
    for place, _, files in os.walk(folder, followlinks=True, onerror=_refuse):
        if os.path.islink(place) and Path(place).parent.resolve().is_relative_to(Path(place).resolve()):
            raise UserError(f"{place}: a link to a folder that it lies in itself; remove it")
        images[place] = [os.path.join(place, file) for file in sorted(files) if is_image(file)]
    return [path for _, paths in sorted(images.items()) for path in paths]


def _refuse(error: OSError) -> NoReturn:
    raise error


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
                file.seek(tar.offset)
                if file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
                    raise tarfile.ReadError("it has no end")  # cut between two members, which Python lets pass
    except (OSError, tarfile.TarError) as error:
        raise UserError(f"{archive}: not a whole tar archive ({error}); copy it again") from None
