"""MNIST and Fashion-MNIST, from the idx files that they are published as (LeCun's page describes the format)."""

import math

import numpy as np

from dpscale.errors import UserError
from dpscale.workloads.datasets.base import Dataset, Published
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.datasets.sources import File, read_files
from dpscale.workloads.samples import Samples, Split

FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
COUNTS = {"train": 60_000, "test": 10_000}
SHAPE = (1, 28, 28)
UNSIGNED_BYTE = b"\x08"


def read_idx(file: File) -> np.ndarray:
    """The array in one idx file: its magic number holds the element type and the number of dimensions.

    Raises:
        UserError: not an idx file of unsigned bytes, or cut short.
    """
    place, content = file.place, file.content
    if len(content) < 4 or content[:3] != b"\0\0" + UNSIGNED_BYTE or content[3] == 0:
        raise UserError(f"{place}: not an idx file of unsigned bytes; copy it again")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise UserError(f"{place}: ends within its header; copy it again")
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], ">u4"))
    if len(content) - header != math.prod(shape):
        raise UserError(f"{place}: {len(content) - header} bytes of data, {math.prod(shape)} expected; copy it again")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _read(config: DatasetConfig) -> dict[str, Split]:
    files = read_files(config.source, [name for names in FILES.values() for name in names])
    splits = {}
    for split, names in FILES.items():
        images, labels = (read_idx(files[name]) for name in names)
        places = " and ".join(files[name].place for name in names)
        if (images.shape[1:], labels.shape[1:]) != (SHAPE[1:], ()):
            raise UserError(
                f"{places}: {split} images of {images.shape[1:]}, labels of {labels.shape[1:]}; copy them again"
            )
        if len(images) != len(labels) or len(images) != COUNTS[split]:
            raise UserError(
                f"{places}: {len(images)} {split} images and {len(labels)} labels; the dataset has {COUNTS[split]} of each"
            )
        splits[split] = (images[:, None], labels.astype(np.int64))
    return splits


def _row(summary: str, published: Published) -> Dataset:
    return Dataset(
        summary=summary,
        settings=("source", "mirrors"),
        published=published,
        samples=lambda config: Samples("images", SHAPE, classes=10),
        counts=lambda config: (COUNTS["train"], COUNTS["test"]),
        read=_read,
    )


MNIST = _row(
    "60,000 + 10,000 handwritten digits",
    Published(
        sha256={
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        # those of PyTorch and of TensorFlow; the page of origin, yann.lecun.com, refuses downloads
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
)
FASHION_MNIST = _row(
    "60,000 + 10,000 images of clothing; Debian has them as dataset-fashion-mnist",
    Published(
        sha256={
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        # its repository, the mirror of Keras, and its authors' own, which knows no https
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
    ),
)
