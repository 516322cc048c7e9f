"""What a calibrated workload would do on another machine: time, efficiency, cost, and where more devices stop to help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dpscale.scaling_model.calibration import Calibration
from dpscale.scaling_model.links import Array, Network
from dpscale.scaling_model.prediction import Prediction, Profile, Setting, predict

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
    limited_by: str


def answers(
    calibration: Calibration, network: Network, setting: Setting, topologies: Sequence[tuple[int, int]]
) -> list[Answer]:
    """One for each topology (nodes, devices per node) on which every device has a sample for each step."""
    nodes, devices_per_node = np.array(topologies).T
    devices = nodes * devices_per_node
    fits = setting.batch_per_device(devices) >= setting.accumulation_steps
    fits &= setting.steps(devices) >= 1
    nodes, devices_per_node, devices = nodes[fits], devices_per_node[fits], devices[fits]
    if not len(devices):
        return []
    found = predict(calibration.profile, network, setting, nodes, devices_per_node)
    low, high = calibration.interval(found, INTERVAL_PERCENT)
    efficiency = scaling_efficiency(calibration.profile, network, setting, devices, found)
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
            limited_by=limit,
        )
        for place, limit in enumerate(found.limits())
    ]


def scaling_efficiency(
    profile: Profile, network: Network, setting: Setting, devices: Array, found: Prediction
) -> Array:
    """[topology]: X(N) / (N X(1)) of the estimate. X counts the samples that are delivered."""
    one = np.ones(1, int)
    alone = predict(profile, network, setting, one, one)

    def samples(devices: Array) -> Array:
        if not setting.drop_last:
            return np.full(len(devices), float(setting.samples))
        return setting.steps(devices) * setting.batch_per_device(devices) * devices

    throughput_of_one = samples(one)[0] / alone.epoch_time_s[0, 0]
    return samples(devices) / found.epoch_time_s[0] / (devices * throughput_of_one)


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
    """(nodes, devices per node) of every power of two of devices and of one and a half times as many, and of all, where
    they fill whole nodes."""
    return [
        (1, devices) if devices <= devices_per_node else (devices // devices_per_node, devices_per_node)
        for devices in sorted({*_sizes(most_devices), most_devices})
        if devices <= devices_per_node or devices % devices_per_node == 0
    ]


def _sizes(most: int) -> Iterator[int]:
    power = 1
    while power <= most:
        yield power
        if power > 1 and power + power // 2 <= most:
            yield power + power // 2
        power *= 2
