"""One all-reduce per gradient after backward: against it, `ddp` shows what buckets and overlap are worth."""

from __future__ import annotations

from dpscale.strategies.base import Accumulation, Replica, Strategy


class AllreduceReplica(Replica):
    def exchange(self) -> None:
        import torch.distributed as dist

        for parameter in self.model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)


ROW = Strategy(
    summary="one all-reduce per gradient after backward: no buckets, no overlap",
    options=Accumulation,
    replica=AllreduceReplica,
)
