"""A model whose layers take their time asleep. What it computes meanwhile is next to nothing, but real."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from dpscale.emulation import clock


class Work:
    """A step of a device that is not there: pieces of work, each right behind the one before, the first when it comes.

    What the host does in between, such as Python, the loss and DDP's hooks, hides behind the next piece, as it does where a
    host runs ahead of its GPU.
    """

    def __init__(self) -> None:
        self._ends_at_s: float | None = None

    def take(self, seconds: float) -> None:
        self._ends_at_s = (clock.now_s() if self._ends_at_s is None else self._ends_at_s) + seconds
        clock.sleep_until(self._ends_at_s)


class SleepingLayer(torch.autograd.Function):
    """Inputs x (1 + the mean of the weights). Its gradient is there when its part of the backward pass has passed."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weights: torch.Tensor, work: Work, backward_s: float) -> torch.Tensor:
        factor = 1 + weights.mean()
        ctx.save_for_backward(inputs, factor)
        ctx.count, ctx.work, ctx.backward_s = len(weights), work, backward_s
        return inputs * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        ctx.work.take(ctx.backward_s)
        inputs, factor = ctx.saved_tensors
        of_each_weight = (gradient * inputs).sum() / ctx.count
        return gradient * factor, of_each_weight.expand(ctx.count), None, None


class SleepingModel(nn.Module):
    """Inputs of any shape (batch, ...) -> logits (batch, classes), after the time that layers of equal size would take.

    It sees the mean of each sample alone: the head, whose gradient is ready first, has next to no weights. Forward sleeps in
    one piece, for nobody waits for a part of it.
    """

    def __init__(
        self,
        *,
        classes: int,
        layers: int,
        weights_per_layer: int,
        forward_s: tuple[float, float],
        backward_s: tuple[float, float],
        jitter: float,
    ) -> None:
        """Times are of the whole model, as (of a batch, of each sample in it).

        Args:
            jitter: standard deviation of the logarithm of a step's time: each rank draws it anew for each step.
        """
        super().__init__()
        self.layers = nn.ParameterList(torch.zeros(weights_per_layer) for _ in range(layers))
        self.head = nn.Linear(1, classes)
        self.forward_s, self.backward_s, self.jitter = forward_s, backward_s, jitter

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        pace = math.exp(self.jitter * torch.randn(()).item())
        forward_s, backward_s = (
            pace * (of_a_batch + of_each_sample * len(inputs))
            for of_a_batch, of_each_sample in (self.forward_s, self.backward_s)
        )
        work = Work()
        work.take(forward_s)
        values = inputs.flatten(start_dim=1).mean(dim=1, keepdim=True)
        for weights in self.layers:
            values = SleepingLayer.apply(values, weights, work, backward_s / len(self.layers))
        logits: torch.Tensor = self.head(values)
        return logits
