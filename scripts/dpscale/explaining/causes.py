"""Stamps -> where a step's time goes, in s per step: pure arithmetic on an explained record.

A step of N ranks is compared, within a round of blocks, with that of one rank alone on its node. All terms are means over
steps and ranks, which add up as the terms of a chain do. With `u - b` from the batch's arrival to the end of a step:

    compute     u - b, plain
    wrapper     u - b, wrapped - plain
    contention  u - b, independent - wrapped
    buffers     until the end of the forward pass, full - independent, where DDP broadcasts buffers before it
    stretch     from the batch's arrival until the last bucket is ready, full - independent, without buffers
    transfer }  from then until the last bucket is exchanged, in full
    waiting  }
    data wait   until the batch is there, in full
    unexplained what is left of the whole step in full: changes of the update, and of DDP's last copies

Within the tail, a bucket's transfer on a rank is its last d seconds, d the least time that any rank spent in that
collective: who comes last waits for nobody. Where no bucket is in transfer, a rank waits. No clock is compared with another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dpscale.explaining.stamps import FULL, INDEPENDENT, PLAIN, RESIDENT, WRAPPED, Block, Explained
from dpscale.metrics import Steps, slowest_s
from dpscale.phases import PHASE_COLUMNS
from dpscale.record import Record

CAUSES = {
    "compute_s": "a plain step on one rank alone on its node, without its data wait: all that an ideal step would take",
    "wrapper_s": "what DDP costs there: wrapped - plain",
    "contention_s": "what ranks that exchange nothing cost each other: independent - wrapped",
    "buffers_s": "broadcast of the model's buffers before the forward pass, and the wait for it: full - independent; empty without any",
    "stretch_s": "how much later the last bucket is ready, as others are exchanged meanwhile: full - independent, without buffers_s; "
    "below zero where waiting ranks leave the others their cores",
    "transfer_s": "the exchange after the last bucket is ready, as it is for the rank that comes last",
    "waiting_s": "the rest of the time until all buckets are exchanged: waiting for other ranks",
    "data_wait_s": "until the batch is on the device",
    "unexplained_s": "what these leave of step_s; in no other column",
}
PARTS = tuple(CAUSES)
EPOCH_COSTS = {
    "loader_start_s": "wait for an epoch's first batch, beyond that for its others",
    "loader_end_s": "from an epoch's last update until its loader has ended",
    "evaluation_s": "evaluation of the test set",
    "between_s": "the rest of the time until the next epoch begins: agreement on one model, a checkpoint; empty for one segment",
}


def by_round(explained: Explained, rank: int | None = None) -> list[dict[str, float]]:
    """Of each round: the step in full (step_s), its PARTS, which add up to it, and how much shorter it is on a batch that
    lies on the device (loader_effect_s); means over ranks, or of one rank."""
    return [_terms(blocks, explained.broadcasts_buffers, rank) for blocks in _rounds(explained)]


def _rounds(explained: Explained) -> Iterator[dict[str, list[Block]]]:
    """Control -> its blocks in the order of ranks, of each round."""
    for number in sorted({block.round for block in explained.blocks}):
        blocks: dict[str, list[Block]] = {}
        for block in sorted(explained.blocks, key=lambda block: block.rank):
            if block.round == number:
                blocks.setdefault(block.control, []).append(block)
        yield blocks


def _terms(blocks: Mapping[str, list[Block]], broadcasts_buffers: bool, rank: int | None) -> dict[str, float]:
    def mean(control: str, start: str, end: str) -> float:
        chosen = blocks[control] if rank is None else [blocks[control][rank]]
        return float(np.mean([np.subtract(_moments(block, end), _moments(block, start)) for block in chosen]))

    def longer(start: str, end: str, control: str, than: str) -> float:
        return mean(control, start, end) - mean(than, start, end)

    step_s = mean(FULL, "start", "update")
    buffers = {"buffers_s": longer("batch", "forward", FULL, INDEPENDENT)} if broadcasts_buffers else {}
    transfers = transfer_s(blocks[FULL])
    transfer = float(np.mean(transfers if rank is None else transfers[rank]))
    terms = {
        "compute_s": mean(PLAIN, "batch", "update"),
        "wrapper_s": longer("batch", "update", WRAPPED, PLAIN),
        "contention_s": longer("batch", "update", INDEPENDENT, WRAPPED),
        **buffers,
        "stretch_s": longer("batch", "last_ready", FULL, INDEPENDENT) - buffers.get("buffers_s", 0.0),
        "transfer_s": transfer,
        "waiting_s": mean(FULL, "last_ready", "last_exchanged") - transfer,
        "data_wait_s": mean(FULL, "start", "batch"),
    }
    return {
        "step_s": step_s,
        **terms,
        "unexplained_s": step_s - sum(terms.values()),
        "loader_effect_s": longer("start", "update", FULL, RESIDENT),
    }


def _moments(block: Block, name: str) -> np.ndarray:
    """[step], of a rank."""
    if name == "last_ready":
        return np.array(block.stamps.ready_s).max(axis=1)
    if name == "last_exchanged":
        return np.array(block.stamps.exchanged_s).max(axis=1)
    return np.array(getattr(block.stamps, f"{name}_s"))


def transfer_s(full: list[Block]) -> np.ndarray:
    """[rank, step]: the time after the last bucket is ready in which some bucket is in transfer."""
    ready, exchanged = (
        np.array([getattr(block.stamps, name) for block in full]) for name in ("ready_s", "exchanged_s")
    )  # [rank, step, bucket]
    least = (exchanged - ready).min(axis=0)
    begins = np.maximum(exchanged - least, ready.max(axis=2, keepdims=True))
    covered, reached = np.zeros(ready.shape[:2]), np.full(ready.shape[:2], -np.inf)
    for bucket in np.moveaxis(np.argsort(begins, axis=2), 2, 0):  # a union of intervals, in the order of their begins
        begin, end = (np.take_along_axis(times, bucket[..., None], axis=2)[..., 0] for times in (begins, exchanged))
        covered += np.maximum(0, end - np.maximum(begin, reached))
        reached = np.maximum(reached, end)
    return covered


def stragglers(explained: Explained) -> list[list[dict[str, float]]]:
    """[round][rank]: how late a rank is (local_delay_s), what that costs the others (step_cost_s), and how often it came last.

    Ranks meet in every exchange, so a rank's time from the end of one backward pass to its first bucket of the next is how
    late it is, before it waits for anyone; of that the median over steps, less the median of the other ranks: below zero it
    is ahead. The cost is what the others wait on average, in steps in which it came last. The two differ: ranks that fall
    out of step have the machine to themselves meanwhile.
    """
    return [_lateness(blocks[FULL]) for blocks in _rounds(explained) if len(blocks[FULL]) > 1]


def _lateness(full: list[Block]) -> list[dict[str, float]]:
    first_ready = np.array([block.stamps.ready_s for block in full]).min(axis=2)
    arrivals = first_ready[:, 1:] - np.array([block.stamps.backward_s for block in full])[:, :-1]  # [rank, step]
    tails = np.array([_moments(block, "last_exchanged") - _moments(block, "last_ready") for block in full])
    waits = (tails - transfer_s(full))[:, 1:]
    usual, last = np.median(arrivals, axis=1), arrivals.argmax(axis=0)
    found = []
    for rank in range(len(full)):
        others = np.arange(len(full)) != rank
        found.append(
            {
                "local_delay_s": float(usual[rank] - np.median(usual[others])),
                "step_cost_s": float(np.mean((last == rank) * waits[others].mean(axis=0))),
                "last": float(usual.argmax() == rank),
            }
        )
    return found


def by_epoch(record: Record, steps: Steps) -> list[dict[str, float]]:
    """Of each timed segment, its EPOCH_COSTS as far as there are any: means over ranks, of any record."""
    found = []
    for index, segment in enumerate(record.segments):
        if segment.warmup:
            continue
        mine = steps["segment"] == index
        first, waits = mine & (steps["step"] == 0), steps["data_wait_s"]
        step_sums = np.sum([steps[phase][mine].sum() for phase in PHASE_COLUMNS]) / len(record.ranks)
        costs = {"loader_end_s": float(np.mean(_lengths(segment.windows_s)) - step_sums)}
        if segment.num_steps > 1:
            costs["loader_start_s"] = float(waits[first].mean() - np.median(waits[mine & ~first]))
        evaluation = segment.evaluation
        if evaluation is not None:
            costs["evaluation_s"] = slowest_s(evaluation.windows_s)
        # a segment of warm-up after a timed one follows an interruption: the time between them is nobody's cost
        if index + 1 < len(record.segments) and not record.segments[index + 1].warmup:
            following = [start for start, _ in record.segments[index + 1].windows_s]
            spent = np.subtract(following, [end for _, end in segment.windows_s])
            costs["between_s"] = float(np.mean(spent) - costs.get("evaluation_s", 0.0))
        found.append(costs)
    return found


def _lengths(windows: list[tuple[float, float]]) -> np.ndarray:
    return np.array([end - start for start, end in windows])


def training_step_s(steps: Steps) -> float:
    """Median over timed steps of the mean over ranks: what a step of the blocks should take, too."""
    timed = ~steps["warmup"]
    times = np.sum([steps[phase][timed] for phase in PHASE_COLUMNS], axis=0)
    order = np.lexsort((steps["rank"][timed], steps["step"][timed], steps["segment"][timed]))
    return float(np.median(times[order].reshape(-1, len(np.unique(steps["rank"]))).mean(axis=1)))
