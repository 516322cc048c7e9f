"""What a calibration is made from: plain lists of what was measured on few devices, as JSON keeps them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Step:
    """Steps of one launch on one device."""

    batch_size: int
    step_s: float  # mean of the timed ones


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """All-reduces of one size on one topology, of one launch."""

    nodes: int
    devices_per_node: int
    nbytes: int
    time_s: float  # median
    values: int  # that it is the median of
    in_step: bool = False  # of a bucket while ranks train; else timed by itself, where ranks meet anew for each
    queued: bool = False  # of a bucket that waited for the one before, which hid what an exchange costs at its start


@dataclass(frozen=True, kw_only=True)
class Contention:
    """What ranks of a node add to each other's step, measured once."""

    ranks_per_node: int
    share: float  # of a step alone


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A whole launch on few devices, which the calibrated model should give."""

    nodes: int
    devices_per_node: int
    batch_size_per_device: int
    steps: float  # of an epoch
    epoch_time_s: float


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """All of them, of one strategy under one launcher."""

    steps: list[Step]
    exchanges: list[Exchange]
    bucket_bytes: list[int]  # of gradients, in the order in which backward fills them
    ready_share: list[list[float]]  # [round][bucket] of a step of one rank alone, until the bucket is ready
    deviation_share: list[float]  # of single ranks' steps from their mean, without any exchange
    contention: list[Contention]
    stretch: list[float]  # [round] seconds by which one of exchange slows backward; none on one rank
    epoch_fixed_s: list[float]  # [epoch]
    launches: list[Launch]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Measurements:
        """Raises TypeError or KeyError: not what `as_dict` gives."""
        kinds = {"steps": Step, "exchanges": Exchange, "contention": Contention, "launches": Launch}
        return cls(**{**data, **{name: [kind(**item) for item in data[name]] for name, kind in kinds.items()}})
