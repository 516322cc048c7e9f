"""What a machine loses of its scaling efficiency, and to what.

Efficiency is device-seconds per sample on one device over those on N. What each part adds to them, against one device, over
all of those on N, is what it takes of the efficiency; all parts together take 1 less the efficiency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpscale.scaling_model.links import Array, Network
from dpscale.scaling_model.prediction import PARTS, Prediction, Profile, Setting, predict

BEYOND_COMPUTE = tuple(name for name in PARTS if name != "compute_s")
LOSSES = (
    *(name.removesuffix("_s") for name in BEYOND_COMPUTE),
    "fixed_cost_per_step",  # t0 of t(b) = t0 + tau b, which a smaller batch bears no better
    "incomplete_last_step",  # of an epoch, where it lacks samples
    "fixed_cost_per_epoch",  # which all devices wait for
)
NOTHING = "nothing"
LEAST_SHARE = 0.01  # of the efficiency: less is no loss to speak of


@dataclass(frozen=True)
class Loss:
    """The part that takes most, and how much of the efficiency; where none takes LEAST_SHARE it is NOTHING, without share."""

    name: str
    share: float | None


def scaling_efficiency(profile: Profile, network: Network, setting: Setting, found: Prediction) -> Array:
    """[topology]: X(N) / (N X(1)) of the estimate. X counts the samples that are delivered."""
    return _device_s(setting, _on_one(profile, network, setting)) / _device_s(setting, found)


def losses(profile: Profile, network: Network, setting: Setting, found: Prediction) -> dict[str, Array]:
    """Loss -> [topology] what it takes of the estimate's efficiency, in parts of 1; below 0 where it adds to it."""
    alone = _parts_s(profile, setting, _on_one(profile, network, setting))
    each, whole = _parts_s(profile, setting, found), _device_s(setting, found)
    return {name: (each[name] - alone[name]) / whole for name in LOSSES}


def largest_losses(profile: Profile, network: Network, setting: Setting, found: Prediction) -> list[Loss]:
    """[topology]"""
    shares = np.array(list(losses(profile, network, setting, found).values()))
    return [
        Loss(LOSSES[place], float(share)) if share >= LEAST_SHARE else Loss(NOTHING, None)
        for place, share in zip(shares.argmax(axis=0), shares.max(axis=0), strict=True)
    ]


def _on_one(profile: Profile, network: Network, setting: Setting) -> Prediction:
    one = np.ones(1, int)
    return predict(profile, network, setting, one, one)


def _device_s(setting: Setting, found: Prediction) -> Array:
    """[topology] device-seconds per sample."""
    return found.epoch_time_s[0] * found.devices / setting.delivered(found.devices)


def _parts_s(profile: Profile, setting: Setting, found: Prediction) -> dict[str, Array]:
    """Loss -> [topology] device-seconds per sample. What a sample costs on one device whatever the batch is the same on all: no loss."""
    batch = setting.batch_per_device(found.devices)
    delivered = setting.delivered(found.devices)
    missing = (
        found.steps * batch * found.devices / delivered - 1
    )  # of steps that are not full, as a part of the samples
    return {
        **{name.removesuffix("_s"): getattr(found, name)[0] / batch for name in BEYOND_COMPUTE},
        "fixed_cost_per_step": setting.accumulation_steps * profile.fixed_s[0] / batch,
        "incomplete_last_step": missing * found.step_time_s[0] / batch,
        "fixed_cost_per_epoch": found.devices * found.epoch_fixed_s[0] / delivered,
    }
