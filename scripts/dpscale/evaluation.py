"""Evaluation by reducing sums: every test sample exactly once, for any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from dpscale import measure
from dpscale.errors import UserError
from dpscale.record import Evaluation, Window
from dpscale.training import Training
from dpscale.workloads.loading import Loader, evaluation_indices, most_evaluation_batches
from dpscale.world import World

TOP = 5  # likeliest classes among which an answer may be right, as ImageNet's error is counted


@dataclass(frozen=True)
class RankEvaluation:
    """One rank's own window, and sums over all ranks."""

    window_s: Window
    samples: int
    predictions: int
    correct: int
    correct_top5: int | None  # None: there are no more than five classes
    loss_sum: float


def evaluate(test: Loader, training: Training, batch_size: int, world: World) -> RankEvaluation:
    """Count and time one pass over the test set. All ranks call it together and get the same sums."""
    model = training.plain_model
    training.become_one()
    model.eval()
    try:
        sums, window_s = measure.time_call(lambda: _sums(test, training, batch_size, world), world)
    finally:
        model.train()
    samples, predictions, correct, correct_top5, loss_sum = sums
    top5 = int(correct_top5) if training.classes > TOP else None
    return RankEvaluation(window_s, int(samples), int(predictions), int(correct), top5, loss_sum)


@torch.no_grad()
def _sums(test: Loader, training: Training, batch_size: int, world: World) -> list[float]:
    """(samples, predictions, correct ones, those right among the five likeliest, sum of samples' losses) over all ranks.

    Integers and float64, so that no order of adding shows. A sample's loss is the mean over its predictions.
    """
    totals = torch.zeros(5, dtype=torch.float64, device=world.device)
    # The plain model: ranks may have different numbers of batches, and a wrapper's forward may wait for the others.
    indices = evaluation_indices(test.num_samples, batch_size, world.rank, world.size)
    for inputs, labels in test.batches(indices):
        with training.precision.autocast():
            output = training.plain_model(inputs)
        losses = training.loss_function(output.float(), labels, reduction="none")
        likeliest = output.topk(min(TOP, output.shape[-1]), dim=-1).indices
        predicted = likeliest[..., 0]
        if not predicted.shape == losses.shape == labels.shape:
            raise UserError(
                f"{training.model_name}: for labels {tuple(labels.shape)} it predicts {tuple(predicted.shape)} and its loss "
                f'with reduction="none" is {tuple(losses.shape)}; give logits of each label in the last dimension, and a '
                "loss for each label"
            )
        loss_sum = losses.double().reshape(len(labels), -1).mean(dim=1).sum()
        counts = torch.tensor([len(labels), labels.numel()], dtype=torch.float64, device=world.device)
        right = (likeliest == labels[..., None]).double()  # in at most one place
        totals += torch.cat([counts, torch.stack([right[..., 0].sum(), right.sum(), loss_sum])])
    if training.replica.waits_in_forward:
        _wait_in_forward(
            test, training, most_evaluation_batches(test.num_samples, batch_size, world.size) - len(indices)
        )
    if world.size > 1:
        dist.all_reduce(totals)
    return totals.tolist()


def _wait_in_forward(test: Loader, training: Training, times: int) -> None:
    """Take part in the forward passes of ranks with more batches, with one sample that counts nowhere."""
    for inputs, _ in test.batches([np.zeros(1, np.int64)] * times):
        training.plain_model(inputs)


def merge(parts: list[RankEvaluation | None], same_weights: bool) -> Evaluation | None:
    """[rank] -> the segment's evaluation. Sums over ranks with different weights belong to no model: left out."""
    evaluated = [part for part in parts if part is not None]
    if not evaluated:
        return None
    first = evaluated[0]
    return Evaluation(
        windows_s=[part.window_s for part in evaluated],
        samples=first.samples,
        predictions=first.predictions,
        correct=first.correct if same_weights else None,
        correct_top5=first.correct_top5 if same_weights else None,
        loss=first.loss_sum / first.samples if same_weights else None,
    )
