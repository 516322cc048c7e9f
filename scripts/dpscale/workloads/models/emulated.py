"""A model that takes the time of one that computes, asleep: two cores carry many ranks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from dpscale.typed import Count, Number, Strict
from dpscale.workloads.models.base import Model
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    from torch import nn

FORWARD, BACKWARD = 1 / 3, 2 / 3  # of a step: backward has two products of matrices for each one of forward


class Options(Strict):
    layers: Count = Field(8, description="layers of equal size, whose gradients are ready one after the other")
    weights_per_layer: Count = Field(8192, description="of float32, real: 4 bytes each are exchanged")
    batch_s: Number = Field(0.03, ge=0, description="time of forward and backward that a batch takes whatever its size")
    sample_s: Number = Field(0.001, ge=0, description="and for each of its samples")
    jitter_percent: Number = Field(
        2.0, ge=0, le=30, description="standard deviation of a step's time, which each rank draws anew for each step"
    )


def _build(options: Options, samples: Samples) -> nn.Module:
    from dpscale.emulation.layers import SleepingModel

    return SleepingModel(
        classes=samples.classes,
        layers=options.layers,
        weights_per_layer=options.weights_per_layer,
        forward_s=(FORWARD * options.batch_s, FORWARD * options.sample_s),
        backward_s=(BACKWARD * options.batch_s, BACKWARD * options.sample_s),
        jitter=options.jitter_percent / 100,
    )


ROW = Model(
    summary="sleeps for the time that each layer would compute, of any depth and size",
    takes="images",
    options=Options,
    build=_build,
    computes=False,
)
