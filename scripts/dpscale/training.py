"""The model under a strategy, and one optimiser step of it in the calls that measure.py times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dpscale.checkpoint import random_state, set_random_state
from dpscale.errors import UserError
from dpscale.own import is_own
from dpscale.precision import Precision
from dpscale.schedule import learning_rates
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import MODEL, Setup
from dpscale.trial import Trial
from dpscale.typed import validated
from dpscale.workloads.loading import Batch, memory_format
from dpscale.workloads.models import MODELS, own
from dpscale.workloads.samples import Samples
from dpscale.world import World


class Training:
    """Model, optimiser and loss of one rank. `parts`, then `forward` and `backward` of each, then `update` make a step."""

    def __init__(self, trial: Trial, samples: Samples, world: World, steps_per_epoch: int) -> None:
        self.strategy, self.world = STRATEGIES[trial.base], world
        self.model_name, self.classes = trial.model, samples.classes
        self.precision = Precision(trial.precision, world.device, self.strategy.casts_itself)
        self.clip_norm = trial.optimizer.get("clip_norm")
        self.learning_rates = learning_rates(trial, steps_per_epoch)
        model = build_model(trial, samples, world).to(memory_format=memory_format(trial))
        self.loss_function = own.loss_of(model) if is_own(trial.model) else MODELS[trial.model].loss
        self.replica = self.strategy.replica(
            Setup(
                model=model,
                options=validated(self.strategy.options, trial.options, trial.strategy),
                optimizer={**trial.optimizer, "lr": trial.learning_rate},
                precision=trial.precision,
                batch_size_per_rank=trial.batch_size_per_rank,
                world=world,
            )
        )
        self.precision.count_steps_of(self.replica.optimizer)
        self.before_first_update: Callable[[], None] | None = None  # gradients are there then, and gone afterwards
        self.model = torch.compile(self.replica.model) if trial.compile else self.replica.model

    def parts(self, batch: Batch) -> list[Batch]:
        """The batch in as many equal parts as gradients are accumulated over."""
        count = self.replica.accumulation_steps
        return [batch] if count == 1 else list(zip(*(tensor.chunk(count) for tensor in batch), strict=True))

    def forward(self, part: Batch, last: bool) -> torch.Tensor:
        inputs, labels = part
        self.replica.begin(last)
        with self.precision.autocast():
            output = self.model(inputs)
            return self.loss_function(output, labels.to(output.device), reduction="mean")

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """The gradient of the loss's share in the batch's mean."""
        count = self.replica.accumulation_steps
        self.replica.backward(self.precision.scaler.scale(loss if count == 1 else loss / count))
        if last:
            self.replica.exchange()

    def gradients_of(self, batch: Batch) -> None:
        """All of a step but its update, off the clock."""
        parts = self.parts(batch)
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            self.backward(self.forward(part, last), last)

    def update(self) -> None:
        if self.before_first_update is not None:
            self.before_first_update()
            self.before_first_update = None
        if self.learning_rates is not None:  # of the steps that were taken: one that a scaler skips does not count
            self.replica.learning_rate = self.learning_rates(self.precision.updates - (self.skipped_steps or 0))
        self.precision.updates += 1
        self.replica.update(lambda optimizer: self.precision.step(optimizer, self.clip_norm))

    def rehearse(self, batch: Batch) -> None:
        """Forward and backward of one batch, so that torch.compile does its work, with no trace in the training."""
        devices = [self.world.device.index] if self.world.device.type == "cuda" else []
        before = {name: buffer.clone() for name, buffer in self.plain_model.named_buffers()}
        with torch.random.fork_rng(devices=devices):
            with torch.no_grad(), self.precision.autocast():
                self.replica.model(batch[0])  # plain first: a hook that waits for it would be compiled in
            self.gradients_of(batch)
        self.replica.optimizer.zero_grad()
        for name, buffer in self.plain_model.named_buffers():
            buffer.copy_(before[name])

    def become_one(self) -> None:
        """Before an evaluation and after the training: one model on all ranks, with rank 0's buffers.

        Batch norm's running statistics are each rank's own after a forward pass, whatever a wrapper does before it.
        """
        self.replica.agree()
        if self.world.size > 1:
            for buffer in self.plain_model.buffers():
                dist.broadcast(buffer, src=0)

    def finish(self) -> None:
        """After the last step; a control's ranks stay as they are."""
        if self.strategy.exchanges_gradients:
            self.become_one()

    def save(self, folder: Path, own: Any) -> None:
        """Write a checkpoint's files of this rank, and with them `own`. All ranks call it together.

        MODEL is the same whatever wraps and shards the model here, so that another strategy, or none, can take it up.
        """
        buffers = dict(self.plain_model.named_buffers())
        weights = list(self.weights())
        if self.world.rank == 0:
            names = [name for name, _ in self.plain_model.named_parameters()]
            torch.save(dict(zip(names, weights, strict=True)) | buffers, folder / MODEL)
        self.replica.save(folder)
        mine = {
            "random": random_state(),  # last: what was called above may have drawn
            "buffers": buffers,
            "precision": self.precision.state(),
            "own": own,
        }
        torch.save(mine, folder / f"rank-{self.world.rank}.pt")

    def load(self, folder: Path) -> Any:
        """Become what `save` has written; returns `own`. All ranks call it together."""
        mine = torch.load(folder / f"rank-{self.world.rank}.pt", map_location="cpu", weights_only=True)
        self.replica.load(folder)
        self.precision.load_state(mine["precision"])
        for name, buffer in self.plain_model.named_buffers():
            buffer.copy_(mine["buffers"][name])
        set_random_state(mine["random"])
        return mine["own"]

    @property
    def skipped_steps(self) -> int | None:
        """Steps that a gradient scaler, ours or the strategy's own, did not take; None without one."""
        return self.replica.skipped_steps if self.strategy.casts_itself else self.precision.skipped_steps

    @property
    def plain_model(self) -> nn.Module:
        """The user's own module, without the strategy's wrapper where it can do without."""
        return self.replica.plain_model

    def weights(self) -> Iterable[torch.Tensor]:
        """All weights, whole, on every rank. All ranks call it together."""
        return self.replica.weights()

    def buffers(self) -> Iterable[torch.Tensor]:
        """What the model keeps beside its weights, such as batch norm's running statistics."""
        return self.plain_model.buffers()


def build_model(trial: Trial, samples: Samples, world: World) -> nn.Module:
    """The same initial weights on every rank and for every strategy; after it, random numbers of this rank's own.

    Raises:
        UserError: the model does not take such samples, or is the user's own and not as it must be.
    """
    torch.manual_seed(trial.seed)
    if is_own(trial.model):
        model = own.build(trial.model, trial.model_options, samples)
    else:
        row = MODELS[trial.model]
        options = validated(row.options, trial.model_options, trial.model)
        if refusal := row.refusal(options, samples):
            raise UserError(
                f"{trial.id}: dataset {trial.dataset!r} has {samples}, but model {trial.model!r} {refusal}; choose another "
                "of the two"
            )
        model = row.build(options, samples)
    torch.manual_seed(trial.seed * 1_000_003 + 1 + world.rank)  # dropout differs between ranks
    return model.to(world.device)
