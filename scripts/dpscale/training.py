"""The model under a strategy, and one optimiser step of it in the three calls that measure.py times."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from dpscale.strategies import STRATEGIES
from dpscale.trial import Trial
from dpscale.typed import validated
from dpscale.workloads.loading import Batch
from dpscale.workloads.models import MODELS
from dpscale.world import World


class Training:
    """Model, optimiser and loss of one rank. `forward`, `backward`, `update` make one step."""

    def __init__(self, trial: Trial, world: World) -> None:
        self.strategy, self.world = STRATEGIES[trial.base], world
        self.loss_function = MODELS[trial.model].loss
        self.autocast = autocast(trial, world)
        options = validated(self.strategy.options, trial.options, trial.strategy)
        self.model = self.strategy.prepare(build_model(trial, world), options, world)
        self.optimizer = self.strategy.make_optimizer(self.model.parameters(), **trial.optimizer)

    def forward(self, batch: Batch) -> torch.Tensor:
        images, labels = batch
        with self.autocast:
            return self.loss_function(self.model(images), labels)

    def backward(self, loss: torch.Tensor) -> None:
        self.strategy.backward(loss, self.model, self.world)

    def update(self) -> None:
        self.strategy.update(self.optimizer)

    def finish(self) -> None:
        self.strategy.finish(self.model, self.world)

    @property
    def plain_model(self) -> nn.Module:
        """The user's own module, without the strategy's wrapper."""
        return self.strategy.plain_model(self.model)


def build_model(trial: Trial, world: World) -> nn.Module:
    """The same initial weights on every rank and for every strategy; after it, random numbers of this rank's own."""
    torch.manual_seed(trial.seed)
    row = MODELS[trial.model]
    model = row.build(validated(row.options, trial.model_options, trial.model), row.classes).to(world.device)
    torch.manual_seed(trial.seed * 1_000_003 + 1 + world.rank)  # dropout differs between ranks
    return model


def autocast(trial: Trial, world: World) -> AbstractContextManager[Any]:
    if trial.precision == "bf16":
        return torch.autocast(world.device.type, dtype=torch.bfloat16)
    return nullcontext()
