"""One rank's link into a network that is not there."""

from __future__ import annotations

import math
import random
import socket
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

from dpscale.emulation import clock
from dpscale.emulation.network import Network
from dpscale.errors import UserError
from dpscale.world import World

MOMENT_BYTES = 8  # of a float64, before the content of each message


class Link:
    """All-reduces are done for real, and then held back until they would have arrived.

    Exchange k arrives at f_k = max(r_k, f_(k-1)) + T(m_k): it begins when the last rank is ready and the link has carried
    what came before it. Ranks tell each other when they are ready and draw the same noise, so that all of them know the same
    f_k. An exchange that really takes longer than that arrives when it does.
    """

    def __init__(self, network: Network, world: World) -> None:
        """All ranks call it together.

        Raises:
            UserError: they are on several machines, which have no clock in common.
        """
        machines = sorted(set(world.exchange(socket.gethostname())))
        if len(machines) > 1:
            raise UserError(
                f"an emulated network needs one machine for all ranks, whose clock they share; these are on "
                f"{', '.join(machines)}; start the launchers of all nodes on one of them"
            )
        self._network, self._world = network, world
        self._noise = random.Random(world.broadcast(torch.initial_seed()))
        self._free_at_s = -math.inf  # f of the exchange before
        self._carrier = ThreadPoolExecutor(max_workers=1)  # carries one exchange after the other

    def all_reduce(self, tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """The sum over ranks, in place. Returns at once: the future has the tensor when it has arrived."""
        arrived: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._carrier.submit(self._carry, tensor, clock.now_s(), arrived)
        return arrived

    def _carry(self, tensor: torch.Tensor, ready_s: float, arrived: torch.futures.Future[torch.Tensor]) -> None:
        try:
            all_ready_s = self._exchange(tensor, ready_s)
            self._free_at_s = max(all_ready_s, self._free_at_s) + self._duration_s(tensor.nbytes)
            clock.sleep_until(self._free_at_s)
        except Exception as error:  # noqa: BLE001 - whatever it is, who waits for the tensor must hear of it
            arrived.set_exception(error)  # type: ignore[arg-type]  # it is annotated as a result
        else:
            arrived.set_result(tensor)

    def _exchange(self, tensor: torch.Tensor, ready_s: float) -> float:
        """Add up the tensor over ranks; returns when the last of them was ready.

        By way of rank 0, in one message of each: a ring would cost N ranks on few cores N times the CPU time.
        """
        message = _packed(ready_s, tensor)
        parts = [torch.empty_like(message) for _ in range(self._world.size)] if self._world.rank == 0 else None
        dist.gather(message, parts)
        if parts is not None:
            moments, tensors = zip(*(_unpacked(part, tensor) for part in parts), strict=True)
            message = _packed(max(moments), torch.stack(tensors).sum(dim=0, dtype=tensor.dtype))
        dist.broadcast(message, src=0)
        all_ready_s, total = _unpacked(message, tensor)
        tensor.copy_(total)
        return all_ready_s

    def _duration_s(self, size_bytes: int) -> float:
        nodes = self._world.nodes
        usual_s = self._network.all_reduce_s(size_bytes, nodes, self._world.size // nodes)
        return usual_s * max(0.0, self._noise.gauss(1.0, self._network.noise_percent / 100))


def _packed(moment_s: float, tensor: torch.Tensor) -> torch.Tensor:
    """Both as bytes."""
    moment = torch.tensor([moment_s], dtype=torch.float64)
    return torch.cat([part.view(torch.uint8) for part in (moment, tensor)])


def _unpacked(message: torch.Tensor, like: torch.Tensor) -> tuple[float, torch.Tensor]:
    """The inverse of `_packed`, of a tensor of this dtype."""
    return message[:MOMENT_BYTES].view(torch.float64).item(), message[MOMENT_BYTES:].view(like.dtype)
