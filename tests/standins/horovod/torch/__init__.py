"""Horovod's interface over torch.distributed, as strict as Horovod: gradients are averaged in backward, `step` waits for
them unless it is told that they have come, and `zero_grad` takes no argument and refuses to drop any on their way."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

_size: int | None = None


def init() -> None:
    """Under another launcher than its own, Horovod is alone."""
    global _size
    _size = int(os.environ.get("HOROVOD_SIZE", "1"))


def size() -> int:
    assert _size is not None, "Horovod has not been initialized; use hvd.init()."
    return _size


def broadcast_parameters(state: dict[str, torch.Tensor], root_rank: int) -> None:
    for tensor in state.values():
        dist.broadcast(tensor, src=root_rank)


class Compression:
    none, fp16 = torch.float32, torch.float16


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]],
    compression: torch.dtype = Compression.none,
) -> torch.optim.Optimizer:
    parameters = [parameter for _, parameter in named_parameters]
    waiting: dict[torch.Tensor, tuple[dist.Work, torch.Tensor]] = {}

    class Distributed(type(optimizer)):
        synchronized, waits = False, True

        def synchronize(self) -> None:
            for parameter, (work, sent) in waiting.items():
                work.wait()
                parameter.grad.copy_(sent.float() / size())
            waiting.clear()
            self.synchronized = True

        @contextmanager
        def skip_synchronize(self) -> Iterator[None]:
            self.waits = False
            try:
                yield
            finally:
                self.waits = True

        def step(self, closure=None):
            if self.waits:
                self.synchronize()
            assert self.synchronized, "a step whose gradients have not come"
            self.synchronized = False
            return super().step(closure)

        def zero_grad(self) -> None:
            assert not waiting, "gradients are still on their way"
            super().zero_grad()

    def send(parameter: torch.Tensor) -> None:
        assert parameter not in waiting, "gradients were computed more than once before a step"
        sent = parameter.grad.to(compression, copy=True)
        waiting[parameter] = dist.all_reduce(sent, async_op=True), sent

    if size() > 1:
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(send)
    return Distributed(optimizer.param_groups)
