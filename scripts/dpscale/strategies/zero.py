"""ZeroRedundancyOptimizer: DDP whose ranks each keep and update a part of the optimiser's state (ZeRO stage 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dpscale.strategies.base import Strategy
from dpscale.strategies.ddp import DDPOptions, DDPReplica

if TYPE_CHECKING:
    import torch


class Options(DDPOptions):
    """Of torch.distributed.optim.ZeroRedundancyOptimizer, and of DDP."""

    parameters_as_bucket_view: bool = Field(False, description="weights live in the buckets that are broadcast")


class ZeroReplica(DDPReplica):
    def make_optimizer(
        self, factory: Callable[..., torch.optim.Optimizer], arguments: dict[str, Any]
    ) -> torch.optim.Optimizer:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            self.model.parameters(),
            optimizer_class=factory,  # type: ignore[arg-type]
            parameters_as_bucket_view=self.options.parameters_as_bucket_view,
            **arguments,
        )


ROW = Strategy(
    summary="ZeRO stage 1 by torch: DDP, with the optimiser's state split over the ranks",
    options=Options,
    min_devices=2,
    replica=ZeroReplica,
)
