"""ZeroRedundancyOptimizer: DDP whose ranks each keep and update a part of the optimiser's state (ZeRO stage 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dpscale.strategies.base import Asked, Strategy
from dpscale.strategies.ddp import DDPOptions, DDPReplica

if TYPE_CHECKING:
    import torch


class Options(DDPOptions):
    """Of torch.distributed.optim.ZeroRedundancyOptimizer, and of DDP."""

    parameters_as_bucket_view: bool = Field(False, description="weights live in the buckets that are broadcast")


class ZeroReplica(DDPReplica):
    ranks_differ = True
    weights_differ = False

    @property
    def own_optimizer(self) -> torch.optim.Optimizer:
        part: torch.optim.Optimizer = self.optimizer.optim  # type: ignore[attr-defined]
        return part

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


def _refuses(options: Options, asked: Asked) -> str | None:
    if options.parameters_as_bucket_view and asked.channels_last:
        return (
            "parameters_as_bucket_view = True: torch's views forget channels_last and train wrongly; use one of the two"
        )
    return None


ROW = Strategy(
    summary="ZeRO stage 1 by torch: DDP, with the optimiser's state split over the ranks",
    options=Options,
    min_devices=2,
    imported_first=("torch.distributed.optim",),
    refuses=_refuses,
    replica=ZeroReplica,
)
