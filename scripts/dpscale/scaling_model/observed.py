"""What a published table says of one workload: its time per step on N devices. Only ratios of times count, so their unit
is any: the time for the samples of one device's batch, or a fixed multiple of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpscale.errors import UserError


@dataclass(frozen=True)
class Layout:
    """Devices over nodes. Raises ValueError unless each node has at least one device."""

    nodes: int
    devices: int

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= self.devices:
            raise ValueError(f"{self.devices} devices on {self.nodes} nodes")

    @property
    def devices_per_node(self) -> float:
        return self.devices / self.nodes

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices_per_node:g}"


@dataclass(frozen=True)
class Point(Layout):
    """A measured time per step. Raises ValueError unless it is a positive number."""

    step_time: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.step_time < float("inf"):
            raise ValueError(f"a time per step of {self.step_time}")


@dataclass(frozen=True)
class Family:
    """Points that differ in the number of devices and in nothing else that the table tells: at most one per layout."""

    points: tuple[Point, ...]
    source: str
    system: str
    model: str
    precision: str
    strategy: str
    batch_per_gpu: str
    gpu: str  # this and the next: empty where the table does not tell
    interconnect: str
    software: str
    metric: str
    unit: str

    @property
    def name(self) -> str:
        facts = (self.system, self.model, self.precision, self.strategy, self.software)
        batch = f"batch {self.batch_per_gpu}" if self.batch_per_gpu else ""
        return ", ".join(fact for fact in (*facts, batch) if fact)


def spelt_alike(name: str) -> str:
    """The same for names that differ in case or blanks alone."""
    return " ".join(name.split()).casefold()


def calibration(points: Iterable[Point], up_to: int) -> list[Point]:
    """Those on at most that many devices, fewest first.

    Raises:
        UserError: they are on fewer than two numbers of devices, from which nothing can be learnt of growth.
    """
    chosen = sorted(
        (point for point in points if point.devices <= up_to), key=lambda point: (point.devices, point.nodes)
    )
    counts = distinct_devices(chosen)
    if len(counts) < 2:
        found = f"only N = {counts[0]}" if counts else "no point"
        raise UserError(
            f"{found} on up to {up_to} devices; measure at two numbers of them, best at 1, 2 and a full node"
        )
    return chosen


def distinct_devices(points: Sequence[Layout]) -> list[int]:
    return sorted({point.devices for point in points})
