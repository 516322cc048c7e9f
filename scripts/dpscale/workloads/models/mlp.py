"""A multilayer perceptron: nearly all weights in a few large matrices, as much exchange per computation as can be."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import Field

from dpscale.typed import Count, Strict
from dpscale.workloads.models.base import Model
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    from torch import nn


class Options(Strict):
    width: Count = Field(256, description="units of each hidden layer")
    depth: Count = Field(2, description="hidden layers")


def _build(options: Options, samples: Samples) -> nn.Module:
    """Images (batch, channels, height, width) float32, flattened -> logits (batch, classes)."""
    from torch import nn

    widths = [math.prod(samples.shape), *[options.width] * options.depth]
    hidden = [layer for before, after in pairwise(widths) for layer in (nn.Linear(before, after), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(options.width, samples.classes))


ROW = Model(
    summary="a multilayer perceptron on the flattened image, of any width and depth",
    takes="images",
    options=Options,
    build=_build,
)
