"""The control: DDP whose communication hook exchanges nothing. What remains of its slow-down is not communication.

Bare ranks without DDP would be the wrong control: they re-allocate their gradients at every step, where DDP keeps them
in its buckets, and that alone moves the step time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpscale.strategies.base import Strategy
from dpscale.strategies.ddp import DDPOptions, DDPReplica
from dpscale.strategies.observed import nothing

if TYPE_CHECKING:
    from dpscale.strategies.observed import Hook


class IndependentReplica(DDPReplica):
    sync_buffers = False
    ranks_differ = True
    steps_apart = None

    def hook(self) -> Hook | None:
        return None, _exchange_nothing


def _exchange_nothing(state, bucket):  # type: ignore[no-untyped-def]  # DDP checks annotations as objects, not as text
    return nothing(bucket)


ROW = Strategy(
    summary="the control: DDP on N ranks that exchange nothing, so that contention is told from communication",
    options=DDPOptions,
    min_devices=2,
    exchanges_gradients=False,
    replica=IndependentReplica,
)
