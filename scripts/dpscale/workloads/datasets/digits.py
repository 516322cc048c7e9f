"""1,797 real handwritten digits from inside scikit-learn: needs no network and no files."""

import numpy as np

from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.samples import Samples, Split

SAMPLES = 1797
EVERY_SIXTH = 6  # every sixth sample is for testing: all writers are in both parts


def _is_test() -> np.ndarray:
    return np.arange(SAMPLES) % EVERY_SIXTH == EVERY_SIXTH - 1


def _counts(config: DatasetConfig) -> tuple[int, int]:
    test = int(_is_test().sum())
    return SAMPLES - test, test


def _read(config: DatasetConfig) -> dict[str, Split]:
    """The 8x8 images with values 0 to 16, resized to 28x28 with values 0 to 255."""
    from PIL import Image
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    small = np.rint(images.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    resized = np.stack(
        [np.asarray(Image.fromarray(image).resize((28, 28), Image.Resampling.BILINEAR)) for image in small]
    )
    test = _is_test()
    return {
        "train": (resized[~test, None], labels[~test].astype(np.int64)),
        "test": (resized[test, None], labels[test].astype(np.int64)),
    }


ROW = Dataset(
    summary="1,797 real handwritten digits from scikit-learn, resized to 28x28; needs no network",
    samples=lambda config: Samples("images", (1, 28, 28), classes=10),
    counts=_counts,
    read=_read,
)
