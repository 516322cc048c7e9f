"""A short look at all nodes before a trial that spans several: which rank, node or pair is slow against the others.

A sick node slows every step of every strategy and looks like a bad network, so it is named before anything is measured.
Three tests, each off the trial's clock and each the best of a few tries, since a healthy rank may be held up once, and a
sick one always is:

    copy      each rank copies within its device's memory
    inside    ranks of one node exchange with a neighbour
    between   ranks of different nodes exchange in pairs, all pairs of nodes, with two partners on each

Compared with the lower median of its kind, what takes more than SLOW_FACTOR times as long is slow. An exchange is as slow
as the worse of its two ends, so a rank is judged by its fastest pair: a healthy one has a fast pair with somebody healthy.
Two nodes with one rank each have a single pair and nothing to compare it with; only their copies are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from statistics import median_low
from typing import Any

import torch
import torch.distributed as dist

from dpscale import measure
from dpscale.world import World

SLOW_FACTOR = 2.0
TRIES = 5
COPY_BYTES = 16 * 2**20
EXCHANGE_BYTES = 2**20
PARTNERS = 2  # of each rank, on each other node

Pair = tuple[int, int]


def survey(world: World, ranks_per_node: int, timeout_s: float) -> dict[str, Any] | None:
    """What rank 0 puts into the record: times by rank and pair, in s, and a line for each that is slow; None elsewhere.

    All ranks call it together, after which what a backend sets up for single pairs is gone again.
    """
    group = dist.new_group(timeout=timedelta(seconds=timeout_s))
    assert isinstance(group, dist.ProcessGroup)  # every rank is in it
    try:
        nodes = world.size // ranks_per_node
        mine = {
            "copy": _best_copy_s(world),
            "inside": _best_exchanges_s(world, group, inside_rounds(nodes, ranks_per_node)),
            "between": _best_exchanges_s(world, group, between_rounds(nodes, ranks_per_node)),
        }
        gathered = world.gather(mine)
    finally:
        dist.destroy_process_group(group)
    if world.device.type == "cuda":  # the peaks are to be the training's
        torch.cuda.empty_cache()
        for index in world.device_indices:
            torch.cuda.reset_peak_memory_stats(index)
    if gathered is None:
        return None
    copies_s = [ranks["copy"] for ranks in gathered]
    pairs_s = {kind: _slower_end(ranks[kind] for ranks in gathered) for kind in ("inside", "between")}
    return {
        "slow_factor": SLOW_FACTOR,
        "copy_bytes": COPY_BYTES,
        "copy_s": copies_s,
        "exchange_bytes": EXCHANGE_BYTES,
        **{f"{kind}_s": [[*pair, time_s] for pair, time_s in pairs.items()] for kind, pairs in pairs_s.items()},
        "slow": list(slow(copies_s, pairs_s["inside"], pairs_s["between"], ranks_per_node)),
    }


def _slower_end(by_rank: Any) -> dict[Pair, float]:
    """Pair -> its time, of both its ranks' own."""
    found: dict[Pair, float] = {}
    for pairs in by_rank:
        for pair, time_s in pairs.items():
            found[pair] = max(time_s, found.get(pair, 0.0))
    return dict(sorted(found.items()))


def inside_rounds(nodes: int, ranks_per_node: int) -> list[list[Pair]]:
    """Rounds of pairs of neighbours on one node; no rank is in two pairs of a round."""
    rounds = [
        [
            (node * ranks_per_node + first, node * ranks_per_node + first + 1)
            for node in range(nodes)
            for first in range(begin, ranks_per_node - 1, 2)
        ]
        for begin in (0, 1)
    ]
    return [pairs for pairs in rounds if pairs]


def between_rounds(nodes: int, ranks_per_node: int) -> list[list[Pair]]:
    """Rounds of pairs of ranks on different nodes: every two nodes meet (a round-robin tournament, by the circle method),
    and each rank of one meets PARTNERS of the other."""
    players = list(range(nodes)) + ([-1] if nodes % 2 else [])  # -1: who meets it sits out
    meetings = []
    for _ in range(len(players) - 1):
        half = len(players) // 2
        meetings.append(
            [(a, b) for a, b in zip(players[:half], reversed(players[half:]), strict=True) if -1 not in (a, b)]
        )
        players = [players[0], players[-1], *players[1:-1]]
    return [
        [
            (min(a, b) * ranks_per_node + local, max(a, b) * ranks_per_node + (local + shift) % ranks_per_node)
            for a, b in meeting
            for local in range(ranks_per_node)
        ]
        for meeting in meetings
        for shift in range(min(PARTNERS, ranks_per_node))
    ]


def _best_copy_s(world: World) -> float:
    source = torch.ones(COPY_BYTES // 4, device=world.device)
    target = torch.empty_like(source)
    return _best_s(lambda: target.copy_(source), world)


def _best_exchanges_s(world: World, group: dist.ProcessGroup, rounds: Sequence[Sequence[Pair]]) -> dict[Pair, float]:
    """This rank's best time of each of its pairs; all ranks take part in every round, with a pair or without."""
    sent = torch.ones(EXCHANGE_BYTES // 4, device=world.device)
    received = torch.empty_like(sent)
    found = {}
    for pairs in rounds:
        pair = next((pair for pair in pairs if world.rank in pair), None)
        if pair is None:
            _best_s(lambda: None, world)
        else:
            peer = pair[0] + pair[1] - world.rank
            found[pair] = _best_s(lambda peer=peer: exchange(sent, received, peer, group), world)  # type: ignore[misc]
    return found


def exchange(sent: torch.Tensor, received: torch.Tensor, peer: int, group: dist.ProcessGroup) -> None:
    """Send to a rank, and receive from it at the same time."""
    ends = [dist.P2POp(dist.isend, sent, peer, group), dist.P2POp(dist.irecv, received, peer, group)]
    for work in dist.batch_isend_irecv(ends):
        work.wait()


def _best_s(call: Callable[[], object], world: World) -> float:
    windows = [measure.time_call(call, world)[1] for _ in range(TRIES + 1)][1:]  # the first opens connections
    return min(end - start for start, end in windows)


def slow(
    copies_s: Sequence[float], inside_s: Mapping[Pair, float], between_s: Mapping[Pair, float], ranks_per_node: int
) -> Iterator[str]:
    """A line for each rank, node or pair that takes more than SLOW_FACTOR times the lower median of its kind."""
    yield from _slow_ranks("copies", dict(enumerate(copies_s)), ranks_per_node)
    for where, pairs_s in (("within its node", inside_s), ("between nodes", between_s)):
        if len(pairs_s) < 2:
            continue
        fastest_s = {
            rank: min(time_s for pair, time_s in pairs_s.items() if rank in pair)
            for rank in sorted({rank for pair in pairs_s for rank in pair})
        }
        yield from _slow_ranks(f"exchanges {where}", fastest_s, ranks_per_node)
        if where == "between nodes":  # within one, healthy pairs differ: not all have a link of their own
            yield from _slow_pairs(pairs_s, set(_sick(fastest_s)), ranks_per_node)


def _sick(times_s: Mapping[int, float]) -> dict[int, float]:
    """Rank -> how many times as long as usual it takes, of those that take too long."""
    usual_s = median_low(times_s.values())
    return {rank: time_s / usual_s for rank, time_s in times_s.items() if time_s > SLOW_FACTOR * usual_s}


def _slow_pairs(pairs_s: Mapping[Pair, float], sick: set[int], ranks_per_node: int) -> Iterator[str]:
    """Links that are slow though both their ends are well."""
    usual_s = median_low(pairs_s.values())
    for (a, b), time_s in pairs_s.items():
        if time_s > SLOW_FACTOR * usual_s and not sick & {a, b}:
            yield (
                f"ranks {a} (node {a // ranks_per_node}) and {b} (node {b // ranks_per_node}): exchanges between nodes take "
                f"{time_s / usual_s:.1f} times as long as usual"
            )


def _slow_ranks(what: str, times_s: Mapping[int, float], ranks_per_node: int) -> Iterator[str]:
    """Whole nodes as one."""
    sick = _sick(times_s)
    for node in sorted({rank // ranks_per_node for rank in sick}):
        ranks = [rank for rank in sick if rank // ranks_per_node == node]
        all_of_it = len(ranks) == len([rank for rank in times_s if rank // ranks_per_node == node])
        factor = min(sick[rank] for rank in ranks)
        names = "" if all_of_it else f", rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        yield f"node {node}{names}: {what} take {factor:.1f} times as long as usual"
