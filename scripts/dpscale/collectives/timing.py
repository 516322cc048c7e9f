"""How a collective is timed: warmed up, in blocks of calls, each block as long as its slowest rank's; every one is checked.

A call of microseconds is too short for a clock between two meetings of ranks, so many follow each other in one block,
and the block's time over its calls is one value. How many calls and blocks there are, all ranks agree on beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dpscale import measure
from dpscale.collectives.exchanges import Exchange
from dpscale.world import World

BLOCK_S = 0.002  # a block is at least this long, if its values let it
WARMUP_BLOCKS = 5
FEWEST_BLOCKS = 10
COPY_BYTES, COPIES = 64 * 2**20, 10


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One rank's blocks."""

    calls: int  # of each block
    times_s: list[float]  # [block]
    checked: int  # results of this rank whose values were compared


def time_exchange(exchange: Exchange, world: World, blocks: int, seconds: float) -> Timed:
    """Time at most so many blocks, and no more than take so many seconds; the same number on all ranks.

    Raises:
        WrongValues: a result is not what it must be.
    """
    calls, longest_s, checked = 1, 0.0, 0
    for _ in range(WARMUP_BLOCKS):
        time_s, compared = time_block(exchange, world, calls)
        checked += compared
        longest_s = world.largest(time_s)
        calls = min(max(calls, math.ceil(calls * BLOCK_S / longest_s)), exchange.most_calls)
    fit = int(seconds / max(longest_s, BLOCK_S))
    blocks = min(blocks, max(fit, FEWEST_BLOCKS))
    times_s = []
    for _ in range(blocks):
        time_s, compared = time_block(exchange, world, calls)
        times_s.append(time_s)
        checked += compared
    return Timed(calls=calls, times_s=times_s, checked=checked)


def time_block(exchange: Exchange, world: World, calls: int) -> tuple[float, int]:
    """This rank's time of so many calls on end, and how many results were compared."""

    def run() -> None:
        for _ in range(calls):
            exchange.call()

    exchange.fill()
    _, (started_s, ended_s) = measure.time_call(run, world)
    if exchange.repeatable or calls == 1:
        return ended_s - started_s, exchange.check(calls)
    exchange.fill()
    exchange.call()
    world.synchronize()
    return ended_s - started_s, exchange.check(1)


def copy_GB_per_s(world: World) -> float:
    """Bytes per second that this rank copies within its device's memory, while all ranks do so: what a link can't beat."""
    source = torch.ones(COPY_BYTES // 4, device=world.device)
    target = torch.empty_like(source)
    windows = [measure.time_call(lambda: target.copy_(source), world)[1] for _ in range(COPIES + 1)][1:]
    times_s = sorted(end - start for start, end in windows)
    return COPY_BYTES / times_s[len(times_s) // 2] / 1e9
