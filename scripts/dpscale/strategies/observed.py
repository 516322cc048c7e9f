"""DDP that says when each of its buckets is ready and when it is exchanged, and whose exchange can be switched off.

The controls of an explained trial are this one wrapper: the same buckets in the same memory, whether it exchanges or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch._C._distributed_c10d import GradBucket
    from torch.nn.parallel import DistributedDataParallel

    Hook = tuple[Any, Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]]  # its state, and itself


class Observer(Protocol):
    """Is told of every bucket, by its number in the order of backward, from whatever thread."""

    def ready(self, bucket: int) -> None: ...

    def exchanged(self, bucket: int) -> None: ...


class Switch:
    """What DDP does with its buckets: what `hook` does, or nothing."""

    def __init__(self, observer: Observer, hook: Hook | None) -> None:
        self.observer = observer
        self._exchanges = True
        self._hook: Hook = hook or (None, averaged)
        self._model: DistributedDataParallel | None = None
        self.broadcasts_buffers = False
        self.bucket_bytes: dict[int, int] = {}  # of gradients, by the bucket's number

    def attach(self, model: DistributedDataParallel) -> None:
        """To the wrapper that it was registered with."""
        self._model = model
        self.broadcasts_buffers = model.forward_sync_buffers and any(True for _ in model.buffers())

    def exchange(self, on: bool) -> None:
        """From the next step on."""
        assert self._model is not None
        self._exchanges = on
        self._model.forward_sync_buffers = on and self.broadcasts_buffers

    def handle(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        number = bucket.index()
        self.bucket_bytes[number] = bucket.buffer().nbytes
        self.observer.ready(number)
        if not self._exchanges:
            done = nothing(bucket)
            self.observer.exchanged(number)
            return done

        def finished(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            self.observer.exchanged(number)
            return future.value()

        state, exchange = self._hook
        return exchange(state, bucket).then(finished)


def nothing(bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The bucket as it is: an exchange that costs nothing."""
    import torch

    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def averaged(state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What DDP does without a hook."""
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    assert dist.group.WORLD is not None
    return allreduce_hook(dist.group.WORLD, bucket)


def switched(state, bucket):  # type: ignore[no-untyped-def]  # DDP checks annotations as objects, not as text
    """The hook of a Switch."""
    return state.handle(bucket)
