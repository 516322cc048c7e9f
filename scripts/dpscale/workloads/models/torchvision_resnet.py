"""torchvision's ResNets (He et al., "Deep residual learning for image recognition", 2016), for images of any size.

Batch norm takes its statistics from each rank's own part of a batch, as is usual: N ranks x b samples do not train on
exactly what one rank x N b samples would.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dpscale.typed import Strict
from dpscale.workloads.models.base import Model
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    from torch import nn


class Options(Strict):
    zero_init_residual: bool = Field(
        True, description="start with every residual branch at zero, as large batches need (Goyal et al., 2017)"
    )
    stem: Literal["imagenet", "cifar"] = Field(
        "imagenet", description="first layers: 7x7 with stride 2 and max-pooling, or for 32x32 images 3x3 alone"
    )


def _build(name: str, options: Options, samples: Samples) -> nn.Module:
    """Images (batch, channels, height, width) float32 -> logits (batch, classes)."""
    from torch import nn
    from torchvision.models import get_model

    model = get_model(name, weights=None, num_classes=samples.classes, zero_init_residual=options.zero_init_residual)
    channels, width = samples.shape[0], model.conv1.out_channels
    if options.stem == "cifar":
        model.conv1 = nn.Conv2d(channels, width, kernel_size=3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != model.conv1.in_channels:
        model.conv1 = nn.Conv2d(channels, width, kernel_size=7, stride=2, padding=3, bias=False)
    else:
        return model
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision has it
    return model


def _row(name: str, weights: str) -> Model:
    return Model(
        summary=f"torchvision's {name}, untrained; {weights} million weights with ImageNet's classes",
        takes="images",
        options=Options,
        build=partial(_build, name),
    )


RESNET18 = _row("resnet18", "11.7")
RESNET34 = _row("resnet34", "21.8")
RESNET50 = _row("resnet50", "25.6")
RESNET101 = _row("resnet101", "44.5")
