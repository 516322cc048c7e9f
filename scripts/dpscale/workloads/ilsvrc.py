"""ImageNet of ILSVRC 2012, from the user's own archives: its licence lets nobody else hand them out.

Read as they are, without unpacking: an image is a range of bytes in an archive. Or from what others have unpacked.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from dpscale.errors import UserError
from dpscale.workloads.image_files import (
    Found,
    ImageFile,
    check_classes,
    class_folders,
    in_class_folders,
    is_image,
    members_of,
)

TRAIN, VAL, DEVKIT = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12"
META, GROUND_TRUTH = "data/meta.mat", "data/ILSVRC2012_validation_ground_truth.txt"
WHERE_FROM = f"""\
ImageNet is not downloaded: its licence is between you and https://image-net.org. Put into that folder
  {TRAIN}, or train/ with a folder of images for each class (n01440764, ...)
  {VAL}, or val/ with its images in a folder for each class, or all in one
  {DEVKIT}.tar.gz, unless val/ has a folder for each class"""


def find(source: Path, expected: int, counts: dict[str, int] | None, dataset: str = "imagenet") -> Found:
    """Classes are WordNet's numbers of synsets.

    Args:
        expected: how many classes there are.
        counts: split -> how many images; None: as many as there are.
        dataset: its name in the config.

    Raises:
        UserError: files are missing, cut, or contradict each other, or there are other numbers of them.
    """
    classes, train = _training_images(source, dataset)
    if len(classes) != expected:
        raise UserError(
            f"{source}: training images of {len(classes)} classes, {expected} expected; complete them, or say of a part: "
            f"datasets.{dataset}.classes: {len(classes)}"
        )
    splits = {"train": train, "test": _validation_images(source, classes, dataset)}
    found = {split: len(images) for split, images in splits.items()}
    if counts not in (None, found):
        counted = ", ".join(f"{found[split]:,} {split} images of {counts[split]:,}" for split in counts)
        raise UserError(f"{source}: {counted}; copy what is missing, or take a part of it as dataset: image_folder")
    return Found(classes, splits)


def _missing(source: Path, dataset: str, what: str) -> UserError:
    return UserError(f"datasets.{dataset}.source = {str(source)!r}: holds no {what}.\n{WHERE_FROM}")


def _training_images(source: Path, dataset: str) -> tuple[list[str], list[ImageFile]]:
    folder, archive = source / "train", source / TRAIN
    if folder.is_dir():
        classes = class_folders(folder)
        return classes, in_class_folders(folder, classes)
    if not archive.is_file():
        raise _missing(source, dataset, f"train/ and no {TRAIN}")
    tars = sorted(
        (PurePosixPath(name).stem, start, size) for name, start, size in members_of(archive) if name.endswith(".tar")
    )
    classes = [name for name, _, _ in tars]
    if twice := sorted({name for name in classes if classes.count(name) > 1}):
        raise UserError(f"{archive}: holds {', '.join(twice)} more than once; copy it again")
    images = []
    for label, (wnid, tar_start, tar_size) in enumerate(tars):
        of_class = _images_in(archive, tar_start, tar_start + tar_size)
        if not of_class:
            raise UserError(f"{archive}: its {wnid}.tar holds no image; copy it again")
        images += [image._replace(label=label) for image in of_class]
    return classes, images


def _images_in(archive: Path, start: int = 0, end: int | None = None) -> list[ImageFile]:
    """The images of a tar, or of one within it, by name; their labels are yet to be found."""
    images = [
        ImageFile(-1, str(archive), first, size, name)
        for name, first, size in members_of(archive, start, end)
        if is_image(PurePosixPath(name).name)
    ]
    return sorted(images, key=_file_name)


def _file_name(image: ImageFile) -> str:
    """Without what stands before it: who packs an archive anew may put ./ or a folder there."""
    return PurePosixPath(image.member or image.path).name


def _validation_images(source: Path, classes: list[str], dataset: str) -> list[ImageFile]:
    """By class and name, as folders of classes have them, whichever way they lie there."""
    folder, archive = source / "val", source / VAL
    if folder.is_dir():
        flat = sorted(path.name for path in folder.iterdir() if path.is_file() and is_image(path.name))
        if not flat:
            return in_class_folders(folder, classes)
        place, images = folder, [ImageFile(-1, str(folder / name)) for name in flat]
    elif archive.is_file():
        place, images = archive, _images_in(archive)
    else:
        raise _missing(source, dataset, f"val/ and no {VAL}")
    labels = _labels_by_devkit(source, dataset, classes, [_file_name(image) for image in images], place)
    labelled = [image._replace(label=label) for label, image in zip(labels, images, strict=True)]
    return sorted(labelled, key=lambda image: image.label)


def _labels_by_devkit(source: Path, dataset: str, classes: list[str], names: list[str], place: Path) -> list[int]:
    """Of validation images, by the numbers in their names."""
    truth = _ground_truth(source, dataset)
    check_classes(f"{source / DEVKIT}", set(truth), classes)
    numbers = [int(found[1]) for name in names if (found := re.fullmatch(r"ILSVRC2012_val_(\d{8})\.JPEG", name))]
    if numbers != list(range(1, len(truth) + 1)) or len(numbers) != len(names):
        raise UserError(
            f"{place}: {len(names):,} images, expected are ILSVRC2012_val_00000001.JPEG to ILSVRC2012_val_{len(truth):08}."
            "JPEG, for which the devkit has labels; copy them again"
        )
    label_of = {name: label for label, name in enumerate(classes)}
    return [label_of[wnid] for wnid in truth]


def _ground_truth(source: Path, dataset: str) -> list[str]:
    """The class of each validation image, in the order of their numbers."""
    from scipy.io import loadmat

    folder, archive = source / DEVKIT, source / f"{DEVKIT}.tar.gz"
    try:
        if folder.is_dir():
            meta, truth = ((folder / name).read_bytes() for name in (META, GROUND_TRUTH))
        elif archive.is_file():
            with tarfile.open(archive, "r:gz") as tar:
                meta, truth = (_content(tar, f"{DEVKIT}/{name}") for name in (META, GROUND_TRUTH))
        else:
            raise _missing(
                source, dataset, f"{DEVKIT}.tar.gz, and its validation images are not in a folder for each class"
            )
        synsets = loadmat(io.BytesIO(meta), squeeze_me=True)["synsets"]
        wnids = {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in synsets if synset["num_children"] == 0}
        return [wnids[int(line)] for line in truth.split()]
    except (OSError, EOFError, zlib.error, tarfile.TarError, KeyError, TypeError) as error:
        raise UserError(f"{source}: its {DEVKIT} is not whole ({error}); copy it again") from None


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise tarfile.ReadError(f"{name} is no file")
    return file.read()
