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
            is_float, factor = expected.is_floating_point(), self.growth ** (calls - 1)
            expected = expected * (float(factor) if is_float else factor)
            tolerance = calls * torch.finfo(expected.dtype).eps if is_float else 0.0
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
    count = count_of(operation, size_bytes, dtype_name, world.size)
    buffers = _Buffers(
        name=f"rank {world.rank}, {operation} of {count} x {dtype_name}",
        rank=world.rank,
        ranks=world.size,
        count=count,
        values=_Values(dtype, world.size, world.device),
        received_like=torch.empty(0, dtype=dtype, device=world.device),
    )
    return EXCHANGES[operation](buffers)


@dataclass(frozen=True, kw_only=True)
class _Buffers:
    """What the exchanges of one rank are made of."""

    name: str
    rank: int
    ranks: int
    count: int  # elements of the whole array
    values: _Values
    received_like: torch.Tensor  # of the dtype and on the device

    @property
    def part(self) -> range:
        """A rank's part of the array, wherever it lies."""
        return range(self.count // self.ranks)

    @property
    def whole(self) -> range:
        return range(self.count)

    @property
    def own(self) -> range:
        """This rank's part, where it lies in the whole."""
        length = len(self.part)
        return range(self.rank * length, (self.rank + 1) * length)

    @property
    def is_root(self) -> bool:
        return self.rank == ROOT

    def new(self, elements: range) -> torch.Tensor:
        return self.received_like.new_empty(len(elements))


def _poison(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.fill_(255 if tensor.dtype == torch.uint8 else -1)


def _out_of_place(
    buffers: _Buffers, call: Callable[[], object], received: torch.Tensor, expected: torch.Tensor | None
) -> Exchange:
    """What is sent stays as it is, so that any number of calls gives the same; None: this rank receives nothing."""
    return Exchange(
        name=buffers.name,
        call=call,
        fill=lambda: _poison(received),
        result=None if expected is None else received,
        expected=expected,
    )


def _all_reduce(buffers: _Buffers) -> Exchange:
    mine, buffer = buffers.values.summand(buffers.rank, buffers.whole), buffers.new(buffers.whole)
    return Exchange(
        name=buffers.name,
        call=lambda: dist.all_reduce(buffer),
        fill=lambda: buffer.copy_(mine),
        result=buffer,
        expected=buffers.values.sums(buffers.whole),
        growth=buffers.ranks,
        most_calls=buffers.values.most_calls,
    )


def _reduce(buffers: _Buffers) -> Exchange:
    mine, buffer = buffers.values.summand(buffers.rank, buffers.whole), buffers.new(buffers.whole)
    return Exchange(
        name=buffers.name,
        call=lambda: dist.reduce(buffer, ROOT),
        fill=lambda: buffer.copy_(mine),
        result=buffer if buffers.is_root else None,
        expected=buffers.values.sums(buffers.whole) if buffers.is_root else None,
        repeatable=False,  # it leaves partial sums on ranks that are to receive nothing
        most_calls=buffers.values.most_calls,
    )


def _broadcast(buffers: _Buffers) -> Exchange:
    sent, buffer = buffers.values.of(ROOT, buffers.whole), buffers.new(buffers.whole)
    return Exchange(
        name=buffers.name,
        call=lambda: dist.broadcast(buffer, ROOT),
        fill=lambda: buffer.copy_(sent) if buffers.is_root else _poison(buffer),
        result=buffer,
        expected=sent,
    )


def _all_parts(buffers: _Buffers) -> torch.Tensor:
    """The parts of all ranks, in their order."""
    return torch.cat([buffers.values.of(rank, buffers.part) for rank in range(buffers.ranks)])


def _all_gather(buffers: _Buffers) -> Exchange:
    sent, received = buffers.values.of(buffers.rank, buffers.part), buffers.new(buffers.whole)
    return _out_of_place(buffers, lambda: dist.all_gather_single(received, sent), received, _all_parts(buffers))


def _gather(buffers: _Buffers) -> Exchange:
    sent, received = buffers.values.of(buffers.rank, buffers.part), buffers.new(buffers.whole)
    parts = list(received.chunk(buffers.ranks)) if buffers.is_root else None
    expected = _all_parts(buffers) if buffers.is_root else None
    return _out_of_place(buffers, lambda: dist.gather(sent, parts, ROOT), received, expected)


def _scatter(buffers: _Buffers) -> Exchange:
    sent, received = buffers.values.of(ROOT, buffers.whole), buffers.new(buffers.part)
    parts = list(sent.chunk(buffers.ranks)) if buffers.is_root else None
    expected = buffers.values.of(ROOT, buffers.own)
    return _out_of_place(buffers, lambda: dist.scatter(received, parts, ROOT), received, expected)


def _reduce_scatter(buffers: _Buffers) -> Exchange:
    sent, received = buffers.values.summand(buffers.rank, buffers.whole), buffers.new(buffers.part)
    expected = buffers.values.sums(buffers.own)
    return _out_of_place(buffers, lambda: dist.reduce_scatter_single(received, sent), received, expected)


def _all_to_all(buffers: _Buffers) -> Exchange:
    sent, received = buffers.values.of(buffers.rank, buffers.whole), buffers.new(buffers.whole)
    expected = torch.cat([buffers.values.of(rank, buffers.own) for rank in range(buffers.ranks)])
    return _out_of_place(buffers, lambda: dist.all_to_all_single(received, sent), received, expected)


def _send_recv(buffers: _Buffers) -> Exchange:
    after, before = (buffers.rank + 1) % buffers.ranks, (buffers.rank - 1) % buffers.ranks
    sent, received = buffers.values.of(buffers.rank, buffers.whole), buffers.new(buffers.whole)

    def send_and_receive() -> None:
        ends = [dist.P2POp(dist.isend, sent, after), dist.P2POp(dist.irecv, received, before)]
        for work in dist.batch_isend_irecv(ends):
            work.wait()

    return _out_of_place(buffers, send_and_receive, received, buffers.values.of(before, buffers.whole))


EXCHANGES: dict[str, Callable[[_Buffers], Exchange]] = {  # of the rows of OPERATIONS
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "send_recv": _send_recv,
}


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
