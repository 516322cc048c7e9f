"""A small stand-in for ImageNet: real images of a prepared dataset, in archives as ILSVRC 2012 has them.

    python tests/stand_in.py data/fashion_mnist data/reduced/ILSVRC2012

Grey images of 28x28 become coloured JPEGs of the sizes of thumbnails: enough for the way of the data, from archives to
accuracy, and nothing to compare times of ImageNet with.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from dpscale.workloads.arrays import open_split

DEVKIT = "ILSVRC2012_devkit_t12"
SIDES = (72, 120)  # pixels, from and to
META = [("ILSVRC2012_ID", "i4"), ("WNID", "O"), ("words", "O"), ("num_children", "i4")]


def wnid(label: int) -> str:
    """As WordNet's numbers of synsets look, in the order of labels."""
    return f"n{10_000_000 + 37 * label:08}"


def synset_id(label: int, classes: int) -> int:
    """The devkit's own number, from 1, which is in another order."""
    return classes - label


def write(prepared: Path, out: Path, train_per_class: int = 64, val_per_class: int = 16) -> None:
    """The three archives of ILSVRC 2012, of all classes of a prepared dataset of images."""
    out.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    train = list(_chosen(prepared, "train", train_per_class, generator))
    val = list(_chosen(prepared, "test", val_per_class, generator))
    classes = 1 + max(label for label, _ in train)
    with tarfile.open(out / "ILSVRC2012_img_train.tar", "w") as tar:
        for label in range(classes):
            of_class = io.BytesIO()
            with tarfile.open(fileobj=of_class, mode="w") as inner:
                for number, jpeg in enumerate(jpeg for its_label, jpeg in train if its_label == label):
                    _add(inner, f"{wnid(label)}_{number}.JPEG", jpeg)
            _add(tar, f"{wnid(label)}.tar", of_class.getvalue())
    generator.shuffle(val)
    with tarfile.open(out / "ILSVRC2012_img_val.tar", "w") as tar:
        for number, (_, jpeg) in enumerate(val, start=1):
            _add(tar, f"ILSVRC2012_val_{number:08}.JPEG", jpeg)
    synsets = [(synset_id(label, classes), wnid(label), f"class {label}", 0) for label in range(classes)]
    meta = io.BytesIO()
    savemat(meta, {"synsets": np.array([*synsets, (classes + 1, "n00001740", "entity", classes)], META)})
    truth = "".join(f"{synset_id(label, classes)}\n" for label, _ in val)
    with tarfile.open(out / f"{DEVKIT}.tar.gz", "w:gz") as tar:
        _add(tar, f"{DEVKIT}/data/meta.mat", meta.getvalue())
        _add(tar, f"{DEVKIT}/data/ILSVRC2012_validation_ground_truth.txt", truth.encode())


def _chosen(prepared: Path, split: str, per_class: int, generator: np.random.Generator) -> Iterator[tuple[int, bytes]]:
    """(label, JPEG) of the first so many images of each class."""
    images, labels = open_split(prepared, split)
    for label in range(int(labels.max()) + 1):
        for image in images[np.flatnonzero(labels == label)[:per_class]]:
            sides = generator.integers(*SIDES, size=2)
            picture = Image.fromarray(np.asarray(image[0])).convert("RGB").resize(sides, Image.Resampling.BICUBIC)
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=90)
            yield label, file.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, help="folder of a prepared dataset of grey images")
    parser.add_argument("out", type=Path, help="folder for the archives")
    parser.add_argument("--train-per-class", type=int, default=64)
    parser.add_argument("--val-per-class", type=int, default=16)
    args = parser.parse_args()
    write(args.prepared, args.out, args.train_per_class, args.val_per_class)
