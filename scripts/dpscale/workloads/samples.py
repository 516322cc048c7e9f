"""What a sample is: of which kind and shape, and among how many classes a model decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

# images: (channels, height, width) and one label; tokens: (context,) and a label for each, the token that follows it
Kind = Literal["images", "tokens"]
# inputs and labels: images (n, channels, height, width) uint8 and (n,) int64; or tokens (n, context) and (n, context),
# the tokens that follow, both of any integer type
Split = tuple[np.ndarray, np.ndarray]
Rows = tuple[int, np.ndarray]  # (epoch, indices of the samples of one batch)


@dataclass(frozen=True)
class Samples:
    """The samples of a dataset. A model is built to fit them."""

    kind: Kind
    shape: tuple[int, ...]
    classes: int  # of tokens: the vocabulary

    def __str__(self) -> str:
        return described(self.kind, self.shape)


def described(kind: Kind, shape: tuple[int, ...] | None) -> str:
    """`images of (1, 28, 28)`, `sequences of 64 tokens`; of any shape: `images`."""
    if shape is None:
        return kind
    return f"images of {shape}" if kind == "images" else f"sequences of {shape[0]} tokens"
