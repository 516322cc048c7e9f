"""What a calibrated workload would do on another machine: time, efficiency, cost, and where more devices stop to help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpscale.scaling_model.calibration import Calibration
from dpscale.scaling_model.links import Network
from dpscale.scaling_model.losses import largest_losses, scaling_efficiency
from dpscale.scaling_model.prediction import Setting, predict

LEAST_EFFICIENCY = 0.5  # at the knee: beyond it more than half of what is added is lost
INTERVAL_PERCENT = 80
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One setting on one topology of a machine."""

    nodes: int
    devices_per_node: int
    devices: int
    batch_size_per_device: float
    epoch_time_s: float
    epoch_time_s_low: float
    epoch_time_s_high: float
    scaling_efficiency: float  # X(N) / (N X(1)), by samples per second
    device_hours: float  # of an epoch
    limited_by: str  # the largest loss of efficiency against one device
    limited_by_share: float | None  # of the efficiency that it takes; None where nothing is lost to speak of


def answers(
    calibration: Calibration, network: Network, setting: Setting, topologies: Sequence[tuple[int, int]]
) -> list[Answer]:
    """One for each topology (nodes, devices per node) that fits the setting.

    Raises:
        UserError: a part of the workload was not measured that such topologies have; says which.
    """
    nodes, devices_per_node = np.array(topologies).T
    devices = nodes * devices_per_node
    fits = setting.fits(devices)
    nodes, devices_per_node, devices = nodes[fits], devices_per_node[fits], devices[fits]
    if not len(devices):
        return []
    for place in zip(nodes, devices_per_node, strict=True):
        calibration.refuse_unknown_workload(*map(int, place))
    found = predict(calibration.profile, network, setting, nodes, devices_per_node)
    low, high = calibration.interval(found, INTERVAL_PERCENT)
    efficiency = scaling_efficiency(calibration.profile, network, setting, found)
    losses = largest_losses(calibration.profile, network, setting, found)
    epoch_s = found.epoch_time_s[0]
    return [
        Answer(
            nodes=int(nodes[place]),
            devices_per_node=int(devices_per_node[place]),
            devices=int(devices[place]),
            batch_size_per_device=float(setting.batch_per_device(devices)[place]),
            epoch_time_s=float(epoch_s[place]),
            epoch_time_s_low=float(low[place]),
            epoch_time_s_high=float(high[place]),
            scaling_efficiency=float(efficiency[place]),
            device_hours=float(devices[place] * epoch_s[place] / SECONDS_PER_HOUR),
            limited_by=loss.name,
            limited_by_share=loss.share,
        )
        for place, loss in enumerate(losses)
    ]


def knee(found: Sequence[Answer], least_efficiency: float = LEAST_EFFICIENCY) -> Answer | None:
    """The most devices up to which efficiency stays at least so much; None where it never is."""
    best = None
    for answer in sorted(found, key=lambda answer: answer.devices):
        if answer.scaling_efficiency < least_efficiency:
            break
        best = answer
    return best


def fastest(found: Sequence[Answer]) -> Answer:
    return min(found, key=lambda answer: answer.epoch_time_s)


def placements(most_devices: int, devices_per_node: int) -> list[tuple[int, int]]:
    """(nodes, devices per node), fewest devices first: of one node in part, then of whole nodes, which are all that fit."""
    whole_nodes = most_devices // devices_per_node
    on_one = [(1, devices) for devices in _counts(min(most_devices, devices_per_node))]
    return on_one + [(nodes, devices_per_node) for nodes in _counts(whole_nodes) if nodes > 1]


def _counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 ...: every power of two and one and a half times as many; and the most."""
    powers = [2**exponent for exponent in range(most.bit_length())]
    return sorted({count for power in powers for count in (power, 3 * power // 2) if count <= most} | {most} - {0})
