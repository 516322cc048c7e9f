"""Sequences of a random Markov chain: each token has three successors, one of them likely, so there is much to learn.

A model that knows the chain has a loss of `ENTROPY_NATS` per token, and the best guess is right in 7 of 10; one that
knows nothing has log(vocabulary).
"""

import numpy as np

from dpscale.workloads.datasets.base import Dataset, as_many_as_asked
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.samples import Samples, Split

PROBABILITIES = np.array([0.7, 0.2, 0.1])  # of a token's successors
ENTROPY_NATS = float(-(PROBABILITIES * np.log(PROBABILITIES)).sum())  # less where successors of a token coincide
TYPES = (np.uint8, np.int16, np.int32)  # torch has few operations on wider unsigned ones


def _samples(config: DatasetConfig) -> Samples:
    return Samples("tokens", (config.context or 64,), config.vocabulary or 256)


def _read(config: DatasetConfig) -> dict[str, Split]:
    made = _samples(config)
    (context,) = made.shape
    smallest = next(kind for kind in TYPES if np.iinfo(kind).max >= made.classes - 1)
    generator = np.random.default_rng(0)
    successors = generator.integers(0, made.classes, (made.classes, len(PROBABILITIES))).astype(smallest)

    def split(count: int) -> Split:
        sequences = np.empty((count, context + 1), smallest)
        sequences[:, 0] = generator.integers(0, made.classes, count)
        for position in range(context):  # all sequences at once
            chosen = generator.choice(len(PROBABILITIES), count, p=PROBABILITIES)
            sequences[:, position + 1] = successors[sequences[:, position], chosen]
        return sequences[:, :-1], sequences[:, 1:]

    train, test = as_many_as_asked(config)
    return {"train": split(train), "test": split(test)}


ROW = Dataset(
    summary="sequences of a random Markov chain, as many and as long as the config asks for",
    settings=("train_samples", "test_samples", "vocabulary", "context"),
    samples=_samples,
    counts=as_many_as_asked,
    read=_read,
)
