"""DATASETS: the one table. A dataset is a ROW in a module beside this file, named here."""

from dpscale.workloads.datasets import digits, idx, image_folder, imagenet, synthetic, synthetic_tokens
from dpscale.workloads.datasets.base import Dataset

DATASETS: dict[str, Dataset] = {
    "digits": digits.ROW,
    "mnist": idx.MNIST,
    "fashion_mnist": idx.FASHION_MNIST,
    "imagenet": imagenet.ROW,
    "image_folder": image_folder.ROW,
    "synthetic": synthetic.ROW,
    "synthetic_tokens": synthetic_tokens.ROW,
}
