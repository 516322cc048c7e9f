"""The small ConvNet of the MNIST tutorials: conv 16, conv 32, max-pool, dropout, 4608-64-10, log-softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from dpscale.typed import Strict
from dpscale.workloads.models.base import Model
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    import torch
    from torch import nn


class Options(Strict):
    dropout: bool = Field(True, description="false makes steps of N ranks and of one rank comparable")


def _build(options: Options, samples: Samples) -> nn.Module:
    """Images (batch, 1, 28, 28) float32 -> log-probabilities (batch, classes).

    The tutorials' second ReLU stands before the max-pool; behind it it gives the same values and gradients for a quarter
    of the work.
    """
    from torch import nn

    def dropout(share: float) -> list[nn.Module]:
        return [nn.Dropout(share)] if options.dropout else []

    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, kernel_size=3),
        nn.MaxPool2d(2),
        nn.ReLU(inplace=True),
        *dropout(0.25),
        nn.Flatten(),
        nn.Linear(32 * 12 * 12, 64),
        nn.ReLU(inplace=True),
        *dropout(0.5),
        nn.Linear(64, samples.classes),
        nn.LogSoftmax(dim=1),
    )


def _loss(output: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    from torch.nn.functional import nll_loss

    return nll_loss(output, labels, reduction=reduction)


ROW = Model(
    summary="the tutorials' ConvNet: two 3x3 convolutions, two linear layers, 0.3 million weights",
    takes="images",
    sample_shape=(1, 28, 28),
    options=Options,
    build=_build,
    loss=_loss,
)
