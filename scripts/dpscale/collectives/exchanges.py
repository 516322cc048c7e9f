"""The collectives themselves: torch's calls on buffers whose values every rank can foretell, so that each result is checked.

A rank's values repeat with a prime period, differ between ranks, and are whole numbers so small that even sums over all
ranks are exact in their dtype. What a call must overwrite is poisoned before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from dpscale.collectives.operations import count_of
from dpscale.world import World

ROOT = 0
PERIOD = 251  # prime: parts of any power of two elements begin at different values
EXACT = {torch.bfloat16: 2**8, torch.float16: 2**11, torch.uint8: 2**8 - 2}  # sums up to these; else:
EXACT_ELSEWHERE = 2**24


class WrongValues(RuntimeError):
    """A collective gave something else than it must. Its times would mean nothing."""


@dataclass(kw_only=True)
class Exchange:
    """One operation on one size: `fill`, then any number of `call`s, then `check`."""

    name: str
    call: Callable[[], object]
    fill: Callable[[], object]  # of what is sent, and the poison of what is received
    result: torch.Tensor | None  # None: this rank receives nothing
    expected: torch.Tensor | None  # after one call
    growth: int = 1  # a call on the result of the last one multiplies it by this: an all-reduce is in place
    repeatable: bool = True  # what several calls on end must give is known
    most_calls: int = 2**20  # on end, before the dtype overflows

    def check(self, calls: int) -> int:
        """Compare the result of so many calls since `fill`; returns how many results were compared.

        Raises:
            WrongValues: names the first wrong element.
        """
        if self.result is None or self.expected is None:
            return 0
        expected, tolerance = self.expected, 0.0
        if self.growth > 1 and calls > 1:
            expected = expected * float(self.growth) ** (calls - 1)
            tolerance = calls * torch.finfo(expected.dtype).eps if expected.is_floating_point() else 0.0
            expected = expected.to(self.result.dtype)
        right = _equal(self.result, expected, tolerance)
        if not right:
            wrong = (self.result.double() - expected.double()).abs() > tolerance * expected.double().abs()
            where = int(wrong.logical_or(self.result.isnan()).nonzero()[0])
            raise WrongValues(
                f"{self.name}: element {where} of {len(expected)} is {self.result[where].item():g} "
                f"after {calls} call{'s' * (calls > 1)}, {expected[where].item():g} is right: nothing is measured"
            )
        return calls if self.growth > 1 else 1  # in place each call takes up the last one's result


def _equal(result: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    if tolerance == 0:
        return torch.equal(result, expected)
    return torch.allclose(result, expected, rtol=tolerance, atol=0)


def exchange_of(operation: str, size_bytes: int, dtype_name: str, world: World) -> Exchange:
    """The operation on buffers of this size; `operations.count_of` says how much of it is used."""
    dtype: torch.dtype = getattr(torch, dtype_name)
    n, rank = world.size, world.rank
    count = count_of(operation, size_bytes, dtype_name, n)
    part = count // n
    values = _Values(dtype, n, world.device)
    own = range(rank * part, (rank + 1) * part)

    def new(length: int) -> torch.Tensor:
        return torch.empty(length, dtype=dtype, device=world.device)

    def poison(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.fill_(255 if dtype == torch.uint8 else -1)

    name = f"rank {rank}, {operation} of {count} x {dtype_name}"
    if operation in ("all_reduce", "reduce"):
        mine, sums, buffer = values.summand(rank, range(count)), values.sums(range(count)), new(count)
        everywhere = operation == "all_reduce"
        receives = everywhere or rank == ROOT
        return Exchange(
            name=name,
            call=(lambda: dist.all_reduce(buffer)) if everywhere else (lambda: dist.reduce(buffer, ROOT)),
            fill=lambda: buffer.copy_(mine),
            result=buffer if receives else None,
            expected=sums if receives else None,
            growth=n if everywhere else 1,
            repeatable=everywhere,  # reduce leaves partial sums on ranks that are to receive nothing
            most_calls=values.most_calls,
        )
    if operation == "broadcast":
        sent, buffer = values.of(ROOT, range(count)), new(count)
        return Exchange(
            name=name,
            call=lambda: dist.broadcast(buffer, ROOT),
            fill=lambda: buffer.copy_(sent) if rank == ROOT else poison(buffer),
            result=buffer,
            expected=sent,
        )
    if operation in ("all_gather", "gather"):
        sent, received = values.of(rank, range(part)), new(count)
        everywhere = operation == "all_gather"
        receives = everywhere or rank == ROOT
        parts = list(received.chunk(n)) if rank == ROOT else None
        return Exchange(
            name=name,
            call=(lambda: dist.all_gather_single(received, sent))
            if everywhere
            else (lambda: dist.gather(sent, parts, ROOT)),
            fill=lambda: poison(received),
            result=received if receives else None,
            expected=torch.cat([values.of(other, range(part)) for other in range(n)]) if receives else None,
        )
    if operation == "scatter":
        sent, received = values.of(ROOT, range(count)), new(part)
        parts = list(sent.chunk(n)) if rank == ROOT else None
        return Exchange(
            name=name,
            call=lambda: dist.scatter(received, parts, ROOT),
            fill=lambda: poison(received),
            result=received,
            expected=values.of(ROOT, own),
        )
    if operation == "reduce_scatter":
        sent, received = values.summand(rank, range(count)), new(part)
        return Exchange(
            name=name,
            call=lambda: dist.reduce_scatter_single(received, sent),
            fill=lambda: poison(received),
            result=received,
            expected=values.sums(own),
        )
    sent, received = values.of(rank, range(count)), new(count)
    if operation == "all_to_all":
        return Exchange(
            name=name,
            call=lambda: dist.all_to_all_single(received, sent),
            fill=lambda: poison(received),
            result=received,
            expected=torch.cat([values.of(other, own) for other in range(n)]),
        )
    assert operation == "send_recv", operation
    after, before = (rank + 1) % n, (rank - 1) % n

    def send_and_receive() -> None:
        ends = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, received, before)]
        for work in dist.batch_isend_irecv(ends):
            work.wait()

    return Exchange(
        name=name,
        call=send_and_receive,
        fill=lambda: poison(received),
        result=received,
        expected=values.of(before, range(count)),
    )


class _Values:
    """What ranks send. Each rank can compute what any other does."""

    def __init__(self, dtype: torch.dtype, ranks: int, device: torch.device) -> None:
        self._dtype, self._ranks, self._device = dtype, ranks, device
        exact = EXACT.get(dtype, EXACT_ELSEWHERE)
        if ranks > exact:
            raise ValueError(f"sums over {ranks} ranks are not exact in {dtype}; use a wider dtype")
        self._highest_summand = min(PERIOD - 1, exact // ranks)

    def of(self, rank: int, elements: range) -> torch.Tensor:
        """A rank's values at these elements."""
        return self._spread(self._period(rank, PERIOD - 1), elements)

    def summand(self, rank: int, elements: range) -> torch.Tensor:
        """The same, of what is summed up over ranks."""
        return self._spread(self._period(rank, self._highest_summand), elements)

    def sums(self, elements: range) -> torch.Tensor:
        total = torch.stack([self._period(rank, self._highest_summand) for rank in range(self._ranks)]).sum(dim=0)
        return self._spread(total, elements)

    @property
    def most_calls(self) -> int:
        """All-reduces in place before the largest sum overflows."""
        largest = torch.finfo(self._dtype).max if self._dtype.is_floating_point else torch.iinfo(self._dtype).max
        if self._ranks == 1:
            return 2**20
        return 1 + int(math.log(largest / (self._ranks * self._highest_summand)) / math.log(self._ranks))

    def _period(self, rank: int, highest: int) -> torch.Tensor:
        return (torch.arange(PERIOD) * 7 + rank * 31) % (highest + 1)

    def _spread(self, period: torch.Tensor, elements: range) -> torch.Tensor:
        period = period.to(self._device, self._dtype).roll(-(elements.start % PERIOD))
        return period.repeat(len(elements) // PERIOD + 1)[: len(elements)].clone()
