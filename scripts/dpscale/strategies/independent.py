"""The control: DDP whose communication hook exchanges nothing. What remains of its slow-down is not communication.

Bare ranks without DDP would be the wrong control: they re-allocate their gradients at every step, where DDP keeps them
in its buckets, and that alone moves the step time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpscale.strategies.base import Strategy
from dpscale.strategies.ddp import DDPOptions, DDPReplica

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import GradBucket
    from torch.nn.parallel import DistributedDataParallel


class IndependentReplica(DDPReplica):
    sync_buffers = False
    ranks_differ = True
    steps_apart = None

    def register_hook(self, model: DistributedDataParallel) -> None:
        import torch

        def exchange_nothing(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        # DDP checks the hook's annotations as objects; postponed ones are text
        exchange_nothing.__annotations__ = {}
        model.register_comm_hook(state=None, hook=exchange_nothing)


ROW = Strategy(
    summary="the control: DDP on N ranks that exchange nothing, so that contention is told from communication",
    options=DDPOptions,
    min_devices=2,
    exchanges_gradients=False,
    replica=IndependentReplica,
)
