"""What an evaluation counts: the right answers, and those among the five likeliest where there are more classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from factories import a_single_trial
from torch import nn

from dpscale.evaluation import RankEvaluation, evaluate, merge
from dpscale.training import Training
from dpscale.workloads.samples import Samples
from dpscale.world import World

ALONE = World(0, 0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))


class Shown:
    """Samples as a Loader hands them out, with inputs that are left as they are."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray) -> None:
        self.inputs, self.labels = torch.from_numpy(inputs), torch.from_numpy(labels)
        self.num_samples = len(labels)

    def batches(self, indices: list[np.ndarray]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return ((self.inputs[rows], self.labels[rows]) for rows in indices)


def evaluated(places: list[int], classes: int) -> RankEvaluation:
    """Of a model whose logits are its inputs: the label of sample i is the places[i]-th likeliest, from 0."""
    generator = np.random.default_rng(0)
    logits = np.stack([generator.permutation(classes) for _ in places]).astype(np.float32)
    labels = np.array([row.tolist().index(classes - 1 - place) for row, place in zip(logits, places, strict=True)])
    samples = Samples("images", (1, 1, classes), classes)
    training = Training(a_single_trial(model="mlp", model_options={}), samples, ALONE, steps_per_epoch=1)
    training.replica.model = nn.Identity()
    return evaluate(Shown(logits, labels), training, batch_size=4, world=ALONE)


def test_the_right_class_is_looked_for_in_first_place_and_in_the_first_five():
    done = evaluated([0, 0, 1, 4, 5, 9, 0], classes=10)
    assert (done.samples, done.predictions, done.correct, done.correct_top5) == (7, 7, 3, 5)


@pytest.mark.parametrize(("classes", "top5"), [(3, None), (5, None), (6, 2)])
def test_with_no_more_than_five_classes_nothing_can_be_wrong_among_five(classes, top5):
    done = evaluated([0, 2], classes)
    assert (done.correct, done.correct_top5) == (1, top5)


def test_where_ranks_hold_different_weights_no_answer_is_counted():
    done = evaluated([0, 1], classes=10)
    assert merge([done, done], same_weights=True).correct_top5 == 2
    assert merge([done, done], same_weights=False).correct_top5 is None
    assert merge([None, None], same_weights=True) is None
