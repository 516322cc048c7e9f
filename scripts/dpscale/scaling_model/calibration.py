"""Measurements on few devices -> a workload's profile and its network, each with draws that say how sure they are.

Every part is resampled by itself: launches, rounds of blocks and ranks' steps with replacement; fits by their relative errors,
drawn anew and fitted again (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, sections 6.2 and 9.5). A launch
differs from what the parts add up to: as launches on few devices do, one on many will, too. From n of them it is known no
better than Student's distribution with n degrees of freedom says (Gelman et al., Bayesian Data Analysis, 3rd ed., section 2.6).
What no part knows of grows beyond them: with each doubling of devices as much comes in again, independently.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from dpscale.errors import UserError
from dpscale.scaling_model import network_fit
from dpscale.scaling_model.compute import fitted_step
from dpscale.scaling_model.links import Array, Network
from dpscale.scaling_model.measurements import Launch, Measurements
from dpscale.scaling_model.prediction import Prediction, Profile, Setting, predict

DRAWS = 400
INTERVALS_PERCENT = (80, 95)


@dataclass(frozen=True)
class Calibration:
    """A workload on its network. The first draw of both is the estimate, the others are resamples."""

    measurements: Measurements
    profile: Profile
    network: Network
    seed: int

    @cached_property
    def launch_error(self) -> Array:
        """[draw] logarithm of the ratio of a launch to the sum of its parts; 0 for the estimate."""
        errors, draws = self.errors_of_launches, len(self.profile.fixed_s) - 1
        if not len(errors):
            return np.zeros(1 + draws)
        drawn = np.random.default_rng((self.seed, 6)).standard_t(len(errors), draws)
        return np.concatenate([[0.0], np.sqrt((errors**2).mean()) * drawn])

    @cached_property
    def errors_of_launches(self) -> Array:
        """log(measured / predicted) of each calibrating launch on several devices, or, without any, on one."""
        launches = self.measurements.launches
        chosen = [one for one in launches if one.nodes * one.devices_per_node > 1] or launches
        return np.array([np.log(one.epoch_time_s / self.of_launch(one)) for one in chosen])

    def of_launch(self, launch: Launch) -> float:
        """Epoch time that the estimate gives a launch as it was."""
        devices = launch.nodes * launch.devices_per_node
        samples = round(launch.steps * launch.batch_size_per_device * devices)
        setting = Setting(samples=samples, batch=launch.batch_size_per_device, scaling="weak")
        found = predict(
            self.profile, self.network, setting, np.array([launch.nodes]), np.array([launch.devices_per_node])
        )
        return float(launch.steps * found.step_time_s[0, 0] + found.epoch_fixed_s[0, 0])

    def interval(self, prediction: Prediction, percent: float) -> tuple[Array, Array]:
        """[topology]: (low, high) of an epoch's time, which one launch should be within so often."""
        largest = max((one.nodes * one.devices_per_node for one in self.measurements.launches), default=1)
        doublings = np.maximum(0.0, np.log2(prediction.devices / largest))
        launches = prediction.epoch_time_s * np.exp(np.outer(self.launch_error, np.sqrt(1 + doublings)))
        outside = (100 - percent) / 2
        low, high = np.percentile(launches[1:], [outside, 100 - outside], axis=0)
        estimate = launches[0]
        return np.minimum(low, estimate), np.maximum(high, estimate)

    def refuse_unmeasured(self, nodes: int, devices_per_node: int) -> None:
        """Raises UserError: nothing that was measured says anything of such a topology; says what is missing."""
        self.refuse_unknown_workload(nodes, devices_per_node)
        name, exchanges = f"{nodes}x{devices_per_node}", network_fit.counting(self.measurements.exchanges)
        if nodes > 1 and not any(one.nodes > 1 for one in exchanges):
            raise UserError(
                f"prediction: {name} has several nodes, and all exchanges were measured on one; time all_reduce on two nodes, "
                "too (collectives.topologies: 2x1), or describe the network in a topology file (scripts/what_if.py)"
            )
        # between nodes the slowest link decides: what crosses them says nothing of a bandwidth within one
        if nodes == 1 and devices_per_node > 1 and not any(one.nodes == 1 < one.devices_per_node for one in exchanges):
            raise UserError(
                f"prediction: {name} is one node of several devices, and all exchanges were measured between nodes; time "
                "all_reduce on 1x2, too (collectives.topologies)"
            )
        if devices_per_node > 1 and not any(one.devices_per_node > 1 for one in exchanges):
            raise UserError(
                f"prediction: {name} has several devices per node, and no exchange within a node was measured; time "
                "all_reduce on 1x2, too (collectives.topologies)"
            )

    def refuse_unknown_workload(self, nodes: int, devices_per_node: int) -> None:
        """The same of the workload alone, whatever the network."""
        name = f"{nodes}x{devices_per_node}"
        if nodes * devices_per_node > 1 and not self.measurements.stretch:
            raise UserError(
                f"prediction: {name} exchanges gradients, and nothing says how that slows the computation; set explain: true for "
                "the strategy on several devices, such as 1x2"
            )
        if devices_per_node > 1 and not self.measurements.contention:
            raise UserError(
                f"prediction: {name} has several ranks per node, and nothing says what they cost each other; set explain: "
                "true for the strategy on 1x2"
            )


def calibrate(measurements: Measurements, seed: int = 0, draws: int = DRAWS) -> Calibration:
    """The model of these measurements; the same seed gives the same draws.

    Raises:
        UserError: a part was not measured, or not in enough places; says which, and how to get it.
    """
    _refuse_too_few(measurements)
    network_fit.refuse_too_few(measurements.exchanges)
    return Calibration(measurements, _profile(measurements, seed, draws), _network(measurements, seed, draws), seed)


def _refuse_too_few(measured: Measurements) -> None:
    sizes = sorted({one.batch_size for one in measured.steps})
    if not sizes:
        raise UserError("prediction: no step on one device was measured; add 1x1 to the experiment's topologies")
    if len(sizes) < 2:
        raise UserError(
            f"prediction: one batch size on one device ({sizes[0]}) can't tell what a step costs from what a sample does; "
            f"give more, such as prediction.batch_sweep: [{max(1, sizes[0] // 2)}, {2 * sizes[0]}]"
        )
    if not measured.bucket_bytes or not measured.ready_share:
        raise UserError(
            "prediction: nothing says when DDP's buckets are ready; set explain: true for the strategy on few devices"
        )
    if any(len(moments) != len(measured.bucket_bytes) for moments in measured.ready_share):
        raise UserError(
            f"prediction: not every round of ready_share has a moment for each of {len(measured.bucket_bytes)} buckets; measure again"
        )
    if not measured.deviation_share:
        raise UserError(
            "prediction: nothing says how ranks' steps differ; set explain: true for the strategy on few devices"
        )
    if not measured.epoch_fixed_s:
        raise UserError("prediction: no whole epoch was measured; train by epochs, or raise epochs")


def _profile(measured: Measurements, seed: int, draws: int) -> Profile:
    fixed_s, per_sample_s = _steps(measured, np.random.default_rng((seed, 0)), draws)
    deviation = np.array(measured.deviation_share)
    places = sorted({one.ranks_per_node for one in measured.contention if one.ranks_per_node > 1})
    rng = np.random.default_rng((seed, 3))
    contention = [
        _medians(np.array([one.share for one in measured.contention if one.ranks_per_node == place]), rng, draws)
        for place in places
    ]
    return Profile(
        fixed_s=fixed_s,
        per_sample_s=per_sample_s,
        bucket_bytes=np.array(measured.bucket_bytes, float),
        ready_share=_medians(np.array(measured.ready_share), np.random.default_rng((seed, 1)), draws),
        deviation_share=_resamples(deviation - deviation.mean(), np.random.default_rng((seed, 2)), draws),
        contention_at=np.array(places, float),
        contention_share=np.column_stack(contention) if contention else np.zeros((1 + draws, 0)),
        # without any, `refuse_unmeasured` lets nothing through but one device, which exchanges nothing
        stretch=_medians(np.array(measured.stretch or [0.0]), np.random.default_rng((seed, 4)), draws),
        epoch_fixed_s=_medians(np.array(measured.epoch_fixed_s), np.random.default_rng((seed, 5)), draws),
    )


def _steps(measured: Measurements, rng: np.random.Generator, draws: int) -> tuple[Array, Array]:
    """([draw] t0, [draw] tau)."""
    sizes = np.array([float(one.batch_size) for one in measured.steps])
    step_s = np.array([one.step_s for one in measured.steps])
    estimate = fitted_step(sizes, step_s)
    fitted_s = estimate[0] + estimate[1] * sizes
    errors = np.log(step_s / fitted_s) * np.sqrt(len(sizes) / max(1, len(sizes) - 2))
    found = [estimate]
    found += [fitted_step(sizes, fitted_s * np.exp(rng.choice(errors, len(errors)))) for _ in range(draws)]
    fixed_s, per_sample_s = np.array(found).T
    return fixed_s, per_sample_s


def _network(measured: Measurements, seed: int, draws: int) -> Network:
    rng = np.random.default_rng((seed, 7))
    all_of_them = [network_fit.fit(measured.exchanges), *network_fit.resampled(measured.exchanges, draws, rng)]
    return Network(
        **{field.name: np.array([getattr(one, field.name) for one in all_of_them], float) for field in fields(Network)}
    )


def _resamples(values: Array, rng: np.random.Generator, draws: int) -> Array:
    """[1 + draw, value, ...]: the values, and values drawn from them with replacement."""
    drawn = values[rng.integers(len(values), size=(draws, len(values)))]
    return np.concatenate([values[None], drawn])


def _medians(values: Array, rng: np.random.Generator, draws: int) -> Array:
    """[1 + draw, ...]: the median over the first axis, and of as many resamples."""
    return np.median(_resamples(values, rng, draws), axis=1)
