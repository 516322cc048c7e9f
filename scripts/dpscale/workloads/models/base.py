"""What a model is: how to build it, and the loss that its output goes into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpscale.typed import Strict

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Model:
    """One row of MODELS. `loss(output, labels)` is a mean over the batch unless `reduction="sum"` is passed."""

    summary: str
    options: type[Strict]
    sample_shape: tuple[int, ...]  # (channels, height, width) of the images that it takes
    classes: int
    build: Callable[[Any, int], nn.Module]  # (options, classes)
    loss: Callable[..., torch.Tensor]
