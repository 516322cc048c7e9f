"""A small GPT: a decoder-only transformer that predicts each next token. Layers are what sharded strategies gather."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from dpscale.typed import Count, Strict
from dpscale.workloads.models.base import Model
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    from torch import nn


class Options(Strict):
    layers: Count = Field(2, description="transformer layers")
    heads: Count = Field(2, description="attention heads of each layer")
    width: Count = Field(64, description="width of the residual stream; a multiple of heads")
    context: Count | None = Field(None, description="longest sequence that it takes; null = as long as the dataset's")

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Options:
        if self.width % self.heads:
            raise ValueError(f"width = {self.width} does not divide by heads = {self.heads}; choose a multiple of it")
        return self


def _refuses(options: Options, samples: Samples) -> str | None:
    if options.context is not None and options.context < samples.shape[0]:
        return f"takes at most context = {options.context} tokens"
    return None


def _build(options: Options, samples: Samples) -> nn.Module:
    from dpscale.workloads.transformer import GPT

    return GPT(
        vocabulary=samples.classes,
        context=options.context or samples.shape[0],
        layers=options.layers,
        heads=options.heads,
        width=options.width,
    )


ROW = Model(
    summary="a decoder-only transformer as GPT-2, of any size: 12 x layers x width² weights and its vocabulary's",
    takes="tokens",
    options=Options,
    refuses=_refuses,
    build=_build,
)
