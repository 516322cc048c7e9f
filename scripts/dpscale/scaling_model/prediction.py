"""The time of an epoch on N devices, as a sum of parts that are each measured.

    T(N) = steps x (compute + contention + compression + stretch + exposed communication + straggler) + fixed per epoch

with steps = ceil(D / (N b)), or without the remainder where the loader drops it. Everything is vectorised: the first axis are
draws of what was calibrated (the first of them alone is the point estimate), the second are topologies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpscale.scaling_model.compute import contention_at, expected_largest
from dpscale.scaling_model.links import Network, all_reduce_s
from dpscale.scaling_model.overlap import exposed_s, in_other_buckets

Array = np.ndarray
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What is known of a workload on one device and on one node. Of a share the whole is a step of one device."""

    fixed_s: Array  # [draw] t0 of t(b) = t0 + tau b
    per_sample_s: Array  # [draw] tau
    bucket_bytes: Array  # [bucket] of gradients, as DDP fills them
    ready_share: Array  # [draw, bucket] of the step, until the bucket is ready
    deviation_share: Array  # [draw, step] by how much steps of single ranks differ from their mean
    contention_at: Array  # [place] ranks per node at which contention was measured, each above 1
    contention_share: Array  # [draw, place] that they add to each other's step
    stretch: Array  # [draw] by how many seconds one of exchange slows the backward pass that it runs beside
    epoch_fixed_s: Array  # [draw] of an epoch, whatever its steps

    def step_s(self, batch_size: Array) -> Array:
        """[draw, topology]: a step of one device alone."""
        return self.fixed_s[:, None] + self.per_sample_s[:, None] * batch_size


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a workload is to be trained."""

    samples: int  # D, of an epoch
    batch: int  # samples of a step: of each device, or of all
    scaling: Literal["weak", "strong"]  # which of the two
    drop_last: bool = False  # a remainder of the samples too small for a step is left out
    accumulation_steps: int = 1  # backward passes of a step, of which the last exchanges
    bytes_factor: float = 1.0  # of a compressed gradient's bytes
    compression_s_per_byte: float = 0.0  # of compressing and restoring, as measured; 0: as quick as a copy
    bucket_cap_MiB: float | None = None  # None: buckets as measured
    local_sgd_period: int | None = None  # steps between averages of the weights; None: gradients in every step

    def batch_per_device(self, devices: Array) -> Array:
        return np.full(len(devices), float(self.batch)) if self.scaling == "weak" else self.batch / devices

    def steps(self, devices: Array) -> Array:
        """Of an epoch."""
        each = self.samples / (self.batch_per_device(devices) * devices)
        return np.floor(each + 1e-9) if self.drop_last else np.ceil(each - 1e-9)

    def fits(self, devices: Array) -> Array:
        """[topology] whether each device has a whole number of samples for each pass, and an epoch a step."""
        passes = self.accumulation_steps * (devices if self.scaling == "strong" else np.ones_like(devices))
        return (self.batch % passes == 0) & (self.steps(devices) >= 1)

    def delivered(self, devices: Array) -> Array:
        """Samples that an epoch trains with."""
        if not self.drop_last:
            return np.full(len(devices), float(self.samples))
        return self.steps(devices) * self.batch_per_device(devices) * devices


PARTS = {
    "compute_s": "a step of one device alone, at this batch per device",
    "contention_s": "what ranks on a node cost each other, without any exchange",
    "compression_s": "compressing gradients and restoring them",
    "stretch_s": "by how much the exchange slows the backward pass that it runs beside",
    "exposed_communication_s": "what of the exchange ends after the backward pass",
    "straggler_s": "by how much the slowest of N ranks is expected to be later than their mean",
}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """[draw, topology] of all but devices and steps, which are [topology]. Seconds are of one step but for an epoch's."""

    devices: Array
    steps: Array
    compute_s: Array
    contention_s: Array
    compression_s: Array
    stretch_s: Array
    exposed_communication_s: Array
    straggler_s: Array
    step_time_s: Array  # the sum of the parts
    epoch_fixed_s: Array
    epoch_time_s: Array


def predict(profile: Profile, network: Network, setting: Setting, nodes: Array, devices_per_node: Array) -> Prediction:
    """An epoch on every one of these topologies. A strong-scaling batch must have a sample for each device."""
    devices = nodes * devices_per_node
    step_s = profile.step_s(setting.batch_per_device(devices) / setting.accumulation_steps)
    several = np.asarray(devices) > 1
    contention_s = step_s * contention_at(devices_per_node, profile.contention_at, profile.contention_share)
    slowed_s = step_s + contention_s  # one forward and backward pass among other ranks
    later = expected_largest(profile.deviation_share, devices) - profile.deviation_share.mean(axis=1, keepdims=True)
    straggler_s = slowed_s * np.maximum(0.0, later)  # 0 of one rank, but for rounding
    links = network.as_column()
    if setting.local_sgd_period is None:
        # a bucket is exchanged when the last rank has it: of what that is late, some hides behind exchanges before
        stretch_s, exposed = _of_buckets(profile, links, setting, slowed_s + straggler_s, nodes, devices_per_node)
        bytes_exchanged = float(profile.bucket_bytes.sum())
    else:
        period = setting.local_sgd_period
        total = float(profile.bucket_bytes.sum())
        exposed = all_reduce_s(total * setting.bytes_factor, nodes, devices_per_node, links) / period
        stretch_s, bytes_exchanged = np.zeros_like(step_s), total / period
        straggler_s = straggler_s / np.sqrt(period)  # of a sum of steps that are independent of each other
    passes = setting.accumulation_steps
    parts = {
        "compute_s": passes * step_s,
        "contention_s": passes * contention_s,
        "compression_s": np.where(several, setting.compression_s_per_byte * bytes_exchanged, 0.0),
        "stretch_s": stretch_s,
        "exposed_communication_s": exposed,
        "straggler_s": np.sqrt(passes) * straggler_s,
    }
    shape = step_s.shape
    parts = {name: np.broadcast_to(values, shape) for name, values in parts.items()}
    step_time_s = sum(parts.values(), np.zeros(shape))
    steps, fixed_s = setting.steps(devices), np.broadcast_to(profile.epoch_fixed_s[:, None], shape)
    return Prediction(
        **parts,
        devices=np.asarray(devices),
        steps=steps,
        step_time_s=step_time_s,
        epoch_fixed_s=fixed_s,
        epoch_time_s=steps * step_time_s + fixed_s,
    )


def _of_buckets(
    profile: Profile, links: Network, setting: Setting, latest_s: Array, nodes: Array, devices_per_node: Array
) -> tuple[Array, Array]:
    """(stretch, exposed communication) of DDP's buckets, where the last rank's step takes `latest_s`."""
    ready, bucket_bytes = profile.ready_share, profile.bucket_bytes
    if setting.bucket_cap_MiB is not None:
        ready, bucket_bytes = in_other_buckets(ready, bucket_bytes, setting.bucket_cap_MiB * MIB)
    exchange_s = [
        all_reduce_s(nbytes * setting.bytes_factor, nodes, devices_per_node, links) for nbytes in bucket_bytes
    ]
    ready_s = [share[:, None] * latest_s for share in ready.T]
    # after the last bucket backward has nothing left but DDP's own copies, which follow the exchange
    backward_s = np.max(ready_s, axis=0)
    several = np.asarray(nodes * devices_per_node) > 1
    begins_s = [moment_s + np.where(several, links.start_s, 0.0) for moment_s in ready_s]
    # the last exchange begins when backward is over, and slows nothing
    stretch_s = profile.stretch[:, None] * sum(exchange_s[:-1], np.zeros_like(latest_s))
    return stretch_s, exposed_s(begins_s, exchange_s, backward_s)
