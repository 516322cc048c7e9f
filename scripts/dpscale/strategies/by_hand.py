"""Two exchanges written out with sends and receives, for teaching, and to show what libraries do better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dpscale.strategies.base import Accumulation, Replica, Strategy

if TYPE_CHECKING:
    import torch


class FlatReplica(Replica):
    """All gradients, or all weights, as one vector: few large messages."""

    def gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]

    @staticmethod
    def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        import torch

        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    @staticmethod
    def spread(vector: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        """The inverse of `flat`, into the tensors."""
        for tensor, part in zip(tensors, vector.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))


class RingReplica(FlatReplica):
    def exchange(self) -> None:
        gradients = self.gradients()
        vector = self.flat(gradients)
        ring_all_reduce(vector, self.world.rank, self.world.size)
        self.spread(vector / self.world.size, gradients)


def ring_all_reduce(vector: torch.Tensor, rank: int, size: int) -> None:
    """Sum a vector over ranks, in place: each sends 2 (N - 1) / N of it to its right neighbour, whatever N.

    N - 1 steps of reduce-scatter leave rank r with the whole sum of chunk r + 1, N - 1 of all-gather pass sums on
    (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009).
    """
    import torch

    chunks = vector.tensor_split(size)
    buffer = torch.empty_like(chunks[0])  # no chunk is longer than the first
    for step in range(size - 1):
        received = buffer[: len(chunks[(rank - step - 1) % size])]
        _pass_right(chunks[(rank - step) % size], received, rank, size)
        chunks[(rank - step - 1) % size].add_(received)
    for step in range(size - 1):
        _pass_right(chunks[(rank + 1 - step) % size], chunks[(rank - step) % size], rank, size)


def _pass_right(outgoing: torch.Tensor, incoming: torch.Tensor, rank: int, size: int) -> None:
    """Send to the right neighbour and receive from the left one, at the same time."""
    import torch.distributed as dist

    operations = []
    if len(outgoing):  # fewer weights than ranks leave chunks empty
        operations.append(dist.P2POp(dist.isend, outgoing, (rank + 1) % size))
    if len(incoming):
        operations.append(dist.P2POp(dist.irecv, incoming, (rank - 1) % size))
    for request in dist.batch_isend_irecv(operations) if operations else []:
        request.wait()


class ServerReplica(FlatReplica):
    """Rank 0 is the server, and a worker as well."""

    def exchange(self) -> None:
        import torch
        import torch.distributed as dist

        gradients = self.gradients()
        mine = self.flat(gradients)
        serves = self.world.rank == 0
        gathered = [torch.empty_like(mine) for _ in range(self.world.size)] if serves else None
        dist.gather(mine, gathered, dst=0)
        if gathered is not None:
            self.spread(torch.stack(gathered).mean(dim=0), gradients)

    def update(self, step: Callable[[torch.optim.Optimizer], object]) -> None:
        import torch
        import torch.distributed as dist

        if self.world.rank == 0:
            step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            weights = list(self.model.parameters())
            vector = self.flat(weights)
            dist.broadcast(vector, src=0)
            self.spread(vector, weights)


RING = Strategy(
    summary="a ring all-reduce by hand, over sends and receives, of all gradients after backward",
    options=Accumulation,
    min_devices=2,
    replica=RingReplica,
)
PARAMETER_SERVER = Strategy(
    summary="rank 0 gathers the gradients, updates, and broadcasts the weights: its link is the bottleneck",
    options=Accumulation,
    min_devices=2,
    precisions=("fp32", "tf32", "bf16"),  # a gradient scaler would have to hear of every rank's update
    replica=ServerReplica,
)
