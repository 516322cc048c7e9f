"""What must hold before a trial may leave a record: correctness gates speed."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.conv import _ConvNd

from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import Strategy
from dpscale.training import Training
from dpscale.trial import Trial
from dpscale.workloads.loading import TrainingStream
from dpscale.world import World

REHEARSED_SAMPLES = 8  # of a device, in each part of its batch: enough to tell a mean from a sum
REHEARSAL_RTOL = 0.05  # half-precision exchanges are at 0.004; N times the mean, or 1/N of it, at 0.5 and more
PLAIN_SGD = {"name": "sgd", "lr": 1.0, "momentum": None, "weight_decay": 0.0}  # its step is the gradient


class CheckFailed(RuntimeError):
    """The trial ran, but its times would mean nothing. No record is written."""


def averages_gradients(trial: Trial, stream: TrainingStream, world: World) -> None:
    """One step of the strategy moves the weights as one device on all ranks' samples would: by the mean gradient.

    A row that adds where it should average, or divides twice, keeps its ranks equal and trains at another learning rate:
    no comparison between ranks finds it. So before the training each rank takes a step on a few of its first samples
    with a model of its own, by plain SGD in fp32, and all-reduces that gradient the plain way; and then the same step
    under the strategy. The model is in evaluation mode, whose batch norm sees single samples and whose dropout is off.

    Raises:
        CheckFailed: on every rank, if the steps differ by more than REHEARSAL_RTOL of the plain one's length on any.
    """
    strategy = STRATEGIES[trial.base]
    if not (strategy.exchanges_gradients and strategy.rehearses) or trial.devices == 1:
        return
    parts = trial.options.get("accumulation_steps", 1)
    per_device = parts * min(REHEARSED_SAMPLES, trial.batch_size_per_device // parts)
    small = replace(trial, precision="fp32", compile=False, optimizer=PLAIN_SGD, batch_size_per_device=per_device)
    (batch,) = stream.batches(0, 1)
    inputs, labels = (tensor[: small.batch_size_per_rank] for tensor in batch)

    plain = Training(
        replace(small, strategy="single", base="single", options={}), stream.samples, world, stream.steps_per_epoch
    )
    before = [weight.clone() for weight in plain.weights()]
    plain.replica.model.eval()
    plain.gradients_of((inputs, labels))
    for parameter in plain.plain_model.parameters():
        if world.size > 1 and parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    plain.update()
    expected = [weight.clone() for weight in plain.weights()]
    del plain

    rehearsed = Training(small, stream.samples, world, stream.steps_per_epoch)
    rehearsed.replica.model.eval()
    rehearsed.gradients_of((inputs, labels))
    rehearsed.update()
    rehearsed.become_one()
    difference, share = _compare_steps(before, expected, rehearsed.weights())
    del rehearsed, before, expected
    gc.collect()  # a wrapper and its hooks hold each other, and a second model must not stay for the training

    difference = world.largest(difference)
    if not difference <= REHEARSAL_RTOL:
        raise CheckFailed(
            f"{trial.id}: a step of strategy {trial.base!r} is {share:.3g} times that by the mean gradient of all ranks "
            f"(relative difference {difference:.2g}, allowed {REHEARSAL_RTOL:g}): it does not average the gradients, so "
            "nothing is measured"
        )
    if world.device.type == "cuda":  # the peak is to be the training's
        torch.cuda.empty_cache()
        for index in world.device_indices:
            torch.cuda.reset_peak_memory_stats(index)


def _compare_steps(
    before: list[torch.Tensor], expected: list[torch.Tensor], reached: Iterable[torch.Tensor]
) -> tuple[float, float]:
    """|reached - expected| / |expected - before| over all weights, and how long the step is along the expected one.

    The first is infinite if it is no number, which a MAX over ranks might drop.
    """
    off = wanted = along = torch.zeros((), dtype=torch.float64, device=before[0].device)
    for old, goal, new in zip(before, expected, reached, strict=True):  # one by one: no copy of all in float64
        step, plain_step = new.double() - old, goal.double() - old
        off = off + (step - plain_step).square().sum()
        wanted = wanted + plain_step.square().sum()
        along = along + (step * plain_step).sum()
    wanted = wanted.clamp(min=torch.finfo(torch.float64).tiny)
    return (off / wanted).sqrt().nan_to_num(nan=math.inf).item(), (along / wanted).item()


def weights_agree(trial: Trial, strategy: Strategy, weights: Iterable[torch.Tensor], world: World) -> float | None:
    """The largest difference between any rank's weights and rank 0's, relative to the largest weight.

    A strategy that forgets to synchronise scales perfectly; ranks see different batches, so their weights give it away.

    Returns:
        None for a control, whose ranks are meant to differ.

    Raises:
        CheckFailed: on every rank, if it is above the strategy's `weights_rtol`.
    """
    if not strategy.exchanges_gradients:
        return None
    difference = _largest_difference(weights, world)
    if not difference <= strategy.weights_rtol:  # NaN is refused too
        raise CheckFailed(
            f"{trial.id}: ranks hold different weights after training (relative difference {difference:.2g}, allowed "
            f"{strategy.weights_rtol:.2g}): strategy {trial.base!r} does not synchronise, so no record is written"
        )
    return difference


def buffers_agree(trial: Trial, strategy: Strategy, buffers: Iterable[torch.Tensor], world: World) -> None:
    """Raises CheckFailed: ranks hold different ones, so that which model was trained depends on which rank is asked."""
    if strategy.exchanges_gradients and (difference := _largest_difference(buffers, world)) != 0:
        raise CheckFailed(
            f"{trial.id}: ranks hold different buffers after training (relative difference {difference:.2g}), such as "
            f"batch norm's running statistics: strategy {trial.base!r} lets them drift apart, so no record is written"
        )


def _largest_difference(tensors: Iterable[torch.Tensor], world: World) -> float:
    """Between any rank's values and rank 0's, relative to the largest of them; the same on all ranks."""
    values = [tensor.detach().double().reshape(-1) for tensor in tensors]
    if world.size == 1 or not values:
        return 0.0
    mine = torch.cat(values)
    first = mine.clone()
    dist.broadcast(first, src=0)
    largest = torch.stack([(mine - first).abs().max(), first.abs().max()])
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return (largest[0] / largest[1].clamp(min=torch.finfo(torch.float64).tiny)).item()


def losses_are_finite(trial: Trial, losses: Iterable[float]) -> None:
    """Raises CheckFailed: a diverged training measures the speed of NaN."""
    for step, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise CheckFailed(f"{trial.id}: the loss of step {step} is {loss}; lower workload.optimizer.lr")


def weights_are_finite(trial: Trial, weights: Iterable[torch.Tensor]) -> None:
    """Raises CheckFailed: the last update diverged, which no loss shows. Comparing can't find it: a MAX may drop NaN."""
    if not all(torch.isfinite(tensor).all() for tensor in weights):
        raise CheckFailed(f"{trial.id}: weights are not finite after training; lower workload.optimizer.lr")


class PrecisionObserver:
    """The dtypes that training really uses, whatever was asked for. Each is looked at once, in the first step.

    A dtype that this row keeps out of sight (gradients in a library's own buffers) is absent.
    """

    def __init__(self, training: Training) -> None:
        self.seen: dict[str, str] = {}
        self._training = training
        model = training.plain_model
        parameters = list(model.parameters())
        self.seen["weights"] = _name(parameters[0].dtype)
        # what autocast rounds: an embedding or a norm stays as it is
        multiplies = (module for module in model.modules() if isinstance(module, nn.Linear | _ConvNd))
        if (layer := next(multiplies, None)) is not None:
            forward_hook = layer.register_forward_hook(lambda module, args, output: saw_output(output))
        training.before_first_update = self._look_at_gradients

        def saw_output(output: torch.Tensor) -> None:
            self.seen["compute"] = _name(output.dtype)
            forward_hook.remove()

    def _look_at_gradients(self) -> None:
        gradients = (parameter.grad for parameter in self._training.plain_model.parameters())
        gradient = next((gradient for gradient in gradients if gradient is not None), None)
        if gradient is not None:
            self.seen["gradients"] = _name(gradient.dtype)

    def look_at_optimizer(self) -> None:
        """After the training: what the optimiser keeps of each weight; plain SGD keeps nothing."""
        kept = [
            value
            for state in self._training.replica.optimizer_state.values()
            for value in state.values()
            if torch.is_tensor(value) and value.ndim
        ]
        self.seen["optimizer_state"] = _name(kept[0].dtype) if kept else "none"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
