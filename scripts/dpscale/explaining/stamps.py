"""The moments of a step that say where its time goes, and the controls that they are taken under."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN = "plain"  # one rank alone on its node, without DDP
WRAPPED = "wrapped"  # one rank alone on its node, under a DDP that exchanges nothing
INDEPENDENT = "independent"  # all ranks, under a DDP that exchanges nothing
FULL = "full"  # all ranks, as they train
RESIDENT = "resident"  # the same on one batch that stays on the device
ALONE = (PLAIN, WRAPPED)
CONTROLS = (PLAIN, WRAPPED, INDEPENDENT, FULL, RESIDENT)


@dataclass(frozen=True, kw_only=True)
class Stamps:
    """One rank's consecutive steps: a value per step, in s of this rank's own clock since a moment of its own.

    Clocks of different nodes share no zero, so that only differences within one rank mean anything.
    """

    start_s: list[float]  # where the step before ended
    batch_s: list[float]  # its batch is on the device
    forward_s: list[float]  # end of the last forward pass
    ready_s: list[list[float]]  # [step][bucket]: its gradients are there, and DDP calls the hook; [] without DDP
    exchanged_s: list[list[float]]  # [step][bucket]: it holds the mean of all ranks; [] without DDP
    backward_s: list[float]  # end of the last backward pass
    update_s: list[float]  # end of the step


@dataclass(frozen=True, kw_only=True)
class Block:
    """One rank's steps under one control. Each round has every control once, in another order."""

    round: int
    control: str
    rank: int
    stamps: Stamps


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one rank, and its whole machine meanwhile, used of the CPUs for all blocks."""

    rank: int
    window_s: tuple[float, float]  # by its machine's clock
    cpu_time_s: float
    machine_cpu_time_s: float  # of all processes, on the CPUs that ranks may use


@dataclass(frozen=True, kw_only=True)
class Explained:
    """All blocks of a trial, of all ranks."""

    broadcasts_buffers: bool  # before each forward pass, such as batch norm's statistics
    bucket_bytes: list[int]  # [bucket] of gradients, before any compression
    blocks: list[Block]
    uses: list[Use]
