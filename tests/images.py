"""Folders and archives of images as users have them, made of scikit-learn's handwritten digits."""

from __future__ import annotations

import io
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

CLASSES = ("n01440764", "n01443537", "n01484850")  # the digits 0, 1 and 2, by the first names of ImageNet's classes
DEVKIT = "ILSVRC2012_devkit_t12"


@cache
def digits(digit: int) -> np.ndarray:
    """All handwritten digits of one kind (n, 8, 8) uint8."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return np.rint(images[labels == digit].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)


def picture(digit: int, number: int, size: tuple[int, int]) -> Image.Image:
    """One of them, of this (width, height), in a colour that depends on its number."""
    grey = Image.fromarray(digits(digit)[number]).resize(size, Image.Resampling.BICUBIC)
    colour = tuple(int(value) for value in np.random.default_rng(number).integers(64, 256, 3))
    return Image.merge("RGB", [grey.point(lambda value, part=part: value * part // 255) for part in colour])


def tree(folder: Path, train: int = 6, val: int = 2, size: tuple[int, int] = (40, 30)) -> Path:
    """train/ and val/ with a folder for each class, of so many JPEGs, named as ImageNet's are."""
    for label, wnid in enumerate(CLASSES):
        for number in range(train + val):
            of_split = (
                f"train/{wnid}/{wnid}_{number}.JPEG"
                if number < train
                else f"val/{wnid}/ILSVRC2012_val_{(number - train) * len(CLASSES) + label + 1:08}.JPEG"
            )
            path = folder / of_split
            path.parent.mkdir(parents=True, exist_ok=True)
            picture(label, number, size).save(path, quality=95)
    return folder


def flat_val(source: Path, folder: Path) -> Path:
    """The validation images of a tree in one folder, as val/ of another."""
    (folder / "val").mkdir(parents=True)
    for path in source.glob("val/*/*"):
        (folder / "val" / path.name).write_bytes(path.read_bytes())
    return folder


def devkit(source: Path, folder: Path) -> Path:
    """ImageNet's devkit for the validation images of a tree: numbers of classes that are not those of their names' order."""
    numbers = {wnid: len(CLASSES) - label for label, wnid in enumerate(CLASSES)}
    synsets = [(number, wnid, 0) for wnid, number in numbers.items()] + [(len(CLASSES) + 1, "n00001740", 3)]
    kind = [("ILSVRC2012_ID", object), ("WNID", object), ("num_children", object)]
    meta = io.BytesIO()
    savemat(meta, {"synsets": np.array(synsets, dtype=kind).reshape(-1, 1)})
    images = sorted(source.glob("val/*/*"), key=lambda path: path.name)
    truth = "".join(f"{numbers[path.parent.name]}\n" for path in images)
    data = folder / DEVKIT / "data"
    data.mkdir(parents=True)
    (data / "meta.mat").write_bytes(meta.getvalue())
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text(truth)
    return folder


def archives(source: Path, folder: Path) -> Path:
    """The three archives that ImageNet is given out in, of a tree."""
    folder.mkdir(parents=True)
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as outer:
        for wnid in CLASSES[::-1]:
            inner = folder / f"{wnid}.tar"
            with tarfile.open(inner, "w") as tar:
                for path in sorted((source / "train" / wnid).iterdir(), reverse=True):
                    tar.add(path, path.name)
            outer.add(inner, inner.name)
            inner.unlink()
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as tar:
        for path in source.glob("val/*/*"):
            tar.add(path, path.name)
    with tarfile.open(folder / f"{DEVKIT}.tar.gz", "w:gz") as tar:
        tar.add(devkit(source, folder / "unpacked") / DEVKIT, DEVKIT)
    return folder
