"""What simpler laws say of the same launches: they are fitted to times alone and know no part of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpscale.errors import UserError
from dpscale.scaling_model.laws import Law
from dpscale.scaling_model.links import Array
from dpscale.scaling_model.measurements import Launch
from dpscale.scaling_model.prediction import Setting


def baseline_epoch_times_s(
    laws: Mapping[str, Law], launches: Sequence[Launch], setting: Setting, devices: Array
) -> dict[str, Array]:
    """Law -> [topology] epoch time in s; a law that wants times on more numbers of devices than there are is left out.

    A law is given the time that N devices take for one sample each, the median over launches, so that weak and strong scaling
    are the same to it: of a perfect machine it is constant.
    """
    each_s: dict[int, list[float]] = {}
    for one in launches:
        time_s = one.epoch_time_s / (one.steps * one.batch_size_per_device)
        each_s.setdefault(one.nodes * one.devices_per_node, []).append(time_s)
    counts, times_s = np.array(list(each_s)), np.array([np.median(times) for times in each_s.values()])
    samples_each = setting.steps(devices) * setting.batch_per_device(devices)
    found = {}
    for name, law in laws.items():
        try:
            curve = law(counts, times_s)
        except UserError:
            continue
        found[name] = np.asarray(curve(devices)) * samples_each
    return found
