"""DistributedDataParallel: one process per device, gradients all-reduced in buckets while backward still runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from dpscale.strategies.base import Strategy
from dpscale.typed import Number, Strict

if TYPE_CHECKING:
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from dpscale.world import World


class Options(Strict):
    """Of torch.nn.parallel.DistributedDataParallel; null leaves torch's own default."""

    bucket_cap_MiB: Number | None = Field(None, gt=0, description="size of a gradient bucket")
    gradient_as_bucket_view: bool = Field(False, description="gradients live in the buckets: one copy less")
    static_graph: bool = Field(False, description="the graph is the same in every step")
    find_unused_parameters: bool = Field(False, description="search the graph for parameters without a gradient")


def wrap(
    model: nn.Module, options: Options, world: World, *, broadcast_buffers: bool = True
) -> DistributedDataParallel:
    from torch.nn.parallel import DistributedDataParallel

    cuda = world.device.type == "cuda"
    return DistributedDataParallel(
        model,
        device_ids=[world.device] if cuda else None,  # on a CPU it must be None
        bucket_cap_mb=options.bucket_cap_MiB,  # torch's "mb" counts 1024 x 1024 bytes
        gradient_as_bucket_view=options.gradient_as_bucket_view,
        static_graph=options.static_graph,
        find_unused_parameters=options.find_unused_parameters,
        broadcast_buffers=broadcast_buffers,
    )


ROW = Strategy(
    summary="DistributedDataParallel: bucketed all-reduce overlapped with backward",
    options=Options,
    prepare=wrap,
)
