"""DATASETS: the one table. A dataset is a ROW in a module beside this file, named here."""

from dpscale.workloads.datasets import cifar, digits, idx, image_folder, imagenet, synthetic, synthetic_tokens
from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig

DATASETS: dict[str, Dataset] = {
    "digits": digits.ROW,
    "mnist": idx.MNIST,
    "fashion_mnist": idx.FASHION_MNIST,
    "cifar10": cifar.CIFAR10,
    "cifar100": cifar.CIFAR100,
    "imagenet": imagenet.ROW,
    "image_folder": image_folder.ROW,
    "synthetic": synthetic.ROW,
    "synthetic_tokens": synthetic_tokens.ROW,
}


def row_name(name: str, config: DatasetConfig) -> str:
    """The row of DATASETS behind a name in the config."""
    return config.base or name


def is_fetched(name: str, config: DatasetConfig) -> bool:
    """Whether a dataset's files come from public places."""
    row = DATASETS.get(row_name(name, config))
    return row is not None and row.published is not None and config.source is None
