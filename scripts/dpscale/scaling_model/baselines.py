"""What simpler laws say of the same launches: they are fitted to times alone and know no part of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpscale.scaling_model.links import Array
from dpscale.scaling_model.measurements import Launch
from dpscale.scaling_model.prediction import Setting

Law = Callable[[Array], Array]  # devices -> time
Fit = Callable[[Array, Array], Law]  # from devices, and the time that each launch took


def baseline_epoch_times_s(
    laws: Mapping[str, Fit], launches: Sequence[Launch], setting: Setting, devices: Array
) -> dict[str, Array]:
    """Law -> [topology] epoch time in s.

    A law is given the time that N devices take for one sample each, so that weak and strong scaling are the same to it: of a
    perfect machine it is constant.
    """
    found = np.array([one.nodes * one.devices_per_node for one in launches])
    batches = np.array([float(one.batch_size_per_device) for one in launches])
    steps = np.array([one.steps for one in launches])
    each_s = np.array([one.epoch_time_s for one in launches]) / (steps * batches)
    samples_each = setting.steps(devices) * setting.batch_per_device(devices)
    return {name: np.asarray(fit(found, each_s)(devices)) * samples_each for name, fit in laws.items()}
