"""Records of few devices, and times of collectives -> what a calibration is made from. Pure arithmetic, as causes.py is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpscale import metrics
from dpscale.explaining import causes
from dpscale.explaining.stamps import FULL, INDEPENDENT, WRAPPED, Block, Explained
from dpscale.record import Record
from dpscale.scaling_model.measurements import Contention, Exchange, Launch, Measurements, Step

Measured = tuple[Record, metrics.Steps]
# what a communication hook leaves of a gradient's bytes; PowerSGD's share depends on the shapes of the weights
BYTES_OF_HOOK = {"none": 1.0, "fp16": 0.5, "bf16": 0.5}


def measurements_of(
    trials: Sequence[Measured], sweep: Sequence[Measured], exchanges: Sequence[Exchange]
) -> Measurements:
    """Of one strategy under one launcher.

    Args:
        trials: its launches on few devices.
        sweep: those on one device with other batches.
        exchanges: all-reduces alone, on few devices; those of the explained launches' own buckets are added.
    """
    explained = [(record, record.explained) for record, _ in trials if record.explained is not None]
    several = [(record, one) for record, one in explained if record.trial.world_size > 1]
    slowed = [row for record, one in several for row in _slowed(record, one)]
    return Measurements(
        steps=[_step(record, steps) for record, steps in [*trials, *sweep] if record.trial.devices == 1],
        exchanges=[*exchanges, *(one for record, found in several for one in exchanges_of(record, found))],
        bucket_bytes=_exchanged_bytes(*explained[0]) if explained else [],
        ready_share=[ready for _, one in explained for ready in _readiness(one)],
        deviation_share=[share for _, one in explained for share in _deviations(one)],
        contention=[one for one, _ in slowed if one.ranks_per_node > 1],
        stretch=[stretch for _, stretch in slowed],
        epoch_fixed_s=[fixed_s for record, steps in [*trials, *sweep] for fixed_s in _fixed_s(record, steps)],
        launches=[_launch(record) for record, _ in trials],
    )


def _fixed_s(record: Record, steps: metrics.Steps) -> list[float]:
    """Of each timed epoch what is no step's; of a training by steps, whose epoch is so many mean steps, nothing."""
    if record.trial.epochs is None:
        return [0.0]
    return [costs["loader_end_s"] + costs.get("loader_start_s", 0.0) for costs in causes.by_epoch(record, steps)]


def _step(record: Record, steps: metrics.Steps) -> Step:
    """Mean of the timed steps of one device, so that they and the fixed costs of each epoch add up to what was timed."""
    segments = record.timed_segments
    fixed_s = sum(_fixed_s(record, steps))
    step_s = (metrics.training_time_s(segments) - fixed_s) / sum(segment.num_steps for segment in segments)
    assert record.trial.batch_size_per_device is not None
    return Step(batch_size=record.trial.batch_size_per_device, step_s=step_s)


def _launch(record: Record) -> Launch:
    trial = record.trial
    assert trial.batch_size_per_device is not None
    assert record.steps_per_epoch is not None
    return Launch(
        nodes=trial.nodes,
        devices_per_node=trial.devices_per_node,
        batch_size_per_device=trial.batch_size_per_device,
        steps=record.steps_per_epoch,
        epoch_time_s=metrics.epoch_time_s(record),
    )


def _exchanged_bytes(record: Record, explained: Explained) -> list[int]:
    left = BYTES_OF_HOOK[record.trial.options.get("comm_hook", "none")]
    return [round(left * nbytes) for nbytes in explained.bucket_bytes]


def _rounds_of(explained: Explained, control: str) -> Iterator[list[Block]]:
    """[round] blocks of a control, in the order of ranks."""
    for number in sorted({block.round for block in explained.blocks}):
        blocks = [block for block in explained.blocks if block.round == number and block.control == control]
        yield sorted(blocks, key=lambda block: block.rank)


def _readiness(explained: Explained) -> Iterator[list[float]]:
    """[round] until each bucket is ready, as shares of a step of a rank alone under DDP."""
    for blocks in _rounds_of(explained, WRAPPED):
        ready = []
        for stamps in (block.stamps for block in blocks):
            start = np.array(stamps.start_s)
            step_s = np.array(stamps.update_s) - start
            ready.append(np.median((np.array(stamps.ready_s) - start[:, None]) / step_s[:, None], axis=0))
        yield np.mean(ready, axis=0).tolist()


def _deviations(explained: Explained) -> Iterator[float]:
    """By which share single ranks' steps differ from their round's mean, where they exchange nothing."""
    for blocks in _rounds_of(explained, INDEPENDENT):
        steps_s = np.array([np.subtract(block.stamps.update_s, block.stamps.start_s) for block in blocks])
        unbiased = np.sqrt(
            steps_s.size / max(1, steps_s.size - 1)
        )  # their own mean is nearer to them than the true one
        yield from ((steps_s / steps_s.mean() - 1) * unbiased).ravel().tolist()


def _slowed(record: Record, explained: Explained) -> Iterator[tuple[Contention, float]]:
    """[round] what ranks of a node cost each other, and by how many seconds one of exchange slows backward.

    Below zero, stretch is contention that is not there, as ranks that wait leave the others their cores.
    """
    rounds = causes.by_round(explained)
    beside_s = [float(exchange_s[:, :-1].sum(axis=1).mean()) for exchange_s, _ in _exchange_s(explained)]
    eases = np.median([terms["stretch_s"] for terms in rounds]) < 0
    for terms, exchange_s in zip(rounds, beside_s, strict=True):
        step_s = terms["compute_s"] + terms["wrapper_s"]
        share = (terms["contention_s"] + (terms["stretch_s"] if eases else 0.0)) / step_s
        stretch = 0.0 if eases or exchange_s <= 0 else terms["stretch_s"] / exchange_s
        yield Contention(ranks_per_node=record.trial.ranks_per_node, share=share), stretch


def _exchange_s(explained: Explained) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """[round] (step, bucket): how long an exchange took by itself, T(m_k) = f_k - max(r_k, f_{k-1}), and whether it was queued
    on all ranks. No clock is compared with another.

    An exchange that waited for a rank took as long as it did on that rank, which is the least of all ranks' times. One that was
    queued on all ranks began on each with the end of the one before, of which ranks hear a little early or late: the
    median is free of that, and the least is not.
    """
    for blocks in _rounds_of(explained, FULL):
        ready = np.array([block.stamps.ready_s for block in blocks])  # [rank, step, bucket]
        exchanged = np.array([block.stamps.exchanged_s for block in blocks])
        before = np.concatenate([np.full((*ready.shape[:2], 1), -np.inf), exchanged[..., :-1]], axis=2)
        lasted = np.maximum(0.0, exchanged - np.maximum(ready, before))
        queued = np.asarray((ready <= before).all(axis=0))
        yield np.where(queued, np.median(lasted, axis=0), lasted.min(axis=0)), queued


def exchanges_of(record: Record, explained: Explained) -> Iterator[Exchange]:
    """The exchange of each bucket of an explained launch on several devices: of those steps in which it was queued, if that is
    most of them, else of the others."""
    times_s, queued = (np.concatenate(parts) for parts in zip(*_exchange_s(explained), strict=True))
    for nbytes, bucket_s, waited in zip(_exchanged_bytes(record, explained), times_s.T, queued.T, strict=True):
        mostly = bool(waited.mean() > 0.5)
        mine = bucket_s[waited == mostly]
        if (time_s := float(np.median(mine))) > 0:
            yield Exchange(
                nodes=record.trial.nodes,
                devices_per_node=record.trial.devices_per_node,
                nbytes=nbytes,
                time_s=time_s,
                values=len(mine),
                in_step=True,
                queued=mostly,
            )
