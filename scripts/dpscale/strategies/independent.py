"""The control: DDP whose communication hook exchanges nothing. What remains of its slow-down is not communication.

Bare ranks without DDP would be the wrong control: they re-allocate their gradients at every step, where DDP keeps them
in its buckets, and that alone moves the step time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpscale.strategies import ddp
from dpscale.strategies.base import Strategy

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch._C._distributed_c10d import GradBucket

    from dpscale.world import World


def _prepare(model: nn.Module, options: ddp.Options, world: World) -> nn.Module:
    import torch

    def exchange_nothing(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    # DDP checks the hook's annotations as objects; postponed ones are text
    exchange_nothing.__annotations__ = {}
    wrapped = ddp.wrap(model, options, world, broadcast_buffers=False)
    wrapped.register_comm_hook(state=None, hook=exchange_nothing)
    return wrapped


ROW = Strategy(
    summary="the control: DDP on N ranks that exchange nothing, so that contention is told from communication",
    options=ddp.Options,
    min_devices=2,
    exchanges_gradients=False,
    prepare=_prepare,
)
