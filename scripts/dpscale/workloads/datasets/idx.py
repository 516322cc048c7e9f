"""MNIST and Fashion-MNIST from a folder of idx files (http://yann.lecun.com/exdb/mnist/), plain or gzipped."""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from dpscale.errors import UserError
from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.samples import Samples, Split

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
COUNTS = {"train": 60_000, "test": 10_000}
SHAPE = (1, 28, 28)
UNSIGNED_BYTE = b"\x08"


def read_idx(path: Path) -> np.ndarray:
    """The array in one idx file: its magic number holds the element type and the number of dimensions.

    Raises:
        UserError: not an idx file of unsigned bytes, or cut short.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: not a whole gzip file ({error}); copy it again") from None
    if len(content) < 4 or content[:3] != b"\0\0" + UNSIGNED_BYTE or content[3] == 0:
        raise UserError(f"{path}: not an idx file of unsigned bytes; copy it again")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise UserError(f"{path}: ends within its header; copy it again")
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], ">u4"))
    if len(content) - header != math.prod(shape):
        raise UserError(f"{path}: {len(content) - header} bytes of data, {math.prod(shape)} expected; copy it again")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    expected = ", ".join(file for files in FILES.values() for file in files)
    raise UserError(f"{folder}: holds neither {name} nor {name}.gz; put these four files there: {expected}")


def _read(config: DatasetConfig) -> dict[str, Split]:
    folder = Path(config.source or "")
    splits = {}
    for split, (image_file, label_file) in FILES.items():
        images, labels = (read_idx(_find(folder, name)) for name in (image_file, label_file))
        if len(images) != len(labels) or len(images) != COUNTS[split]:
            raise UserError(
                f"{folder}: {len(images)} {split} images and {len(labels)} labels; the dataset has {COUNTS[split]} of each"
            )
        if (images.shape[1:], labels.shape[1:]) != (SHAPE[1:], ()):
            raise UserError(
                f"{folder}: {split} images of {images.shape[1:]}, labels of {labels.shape[1:]}; copy them again"
            )
        splits[split] = (images[:, None], labels.astype(np.int64))
    return splits


def _row(summary: str) -> Dataset:
    return Dataset(
        summary=summary,
        settings=("source",),
        samples=lambda config: Samples("images", SHAPE, classes=10),
        counts=lambda config: (COUNTS["train"], COUNTS["test"]),
        read=_read,
    )


MNIST = _row("60,000 + 10,000 handwritten digits from a local folder of idx files")
FASHION_MNIST = _row(
    "60,000 + 10,000 images of clothing from a local folder of idx files, such as Debian's dataset-fashion-mnist"
)
