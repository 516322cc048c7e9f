"""The learning rate of each step: by the schedule, scaled with the batch where that is asked for, the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from factories import a_config, a_single_trial, a_trial, changed
from launching import SGD, small_trial, trained
from torch import nn, optim
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR, SequentialLR

from dpscale.config import load_config
from dpscale.errors import ConfigError
from dpscale.largest import probe_of
from dpscale.planning.plan import plan_trials
from dpscale.schedule import learning_rates
from dpscale.training import Training
from dpscale.workloads.loading import TrainingStream
from dpscale.world import World

PEAK, STEPS_PER_EPOCH, EPOCHS = 0.4, 5, 6
ONE = World(0, 0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))


def a_schedule(kind: str, **changes: Any) -> dict[str, Any]:
    return {"kind": kind, "warmup_epochs": 0.0, "milestones": None, "gamma": None, **changes}


def rates(schedule: dict[str, Any], **trial: Any) -> list[float]:
    """Of every step of a training of 6 epochs of 5 steps."""
    optimizer = {**SGD, "lr": PEAK, "schedule": schedule}
    rate_of = learning_rates(a_trial(optimizer=optimizer, **{"epochs": EPOCHS, **trial}), STEPS_PER_EPOCH)
    return [PEAK if rate_of is None else rate_of(step) for step in range(EPOCHS * STEPS_PER_EPOCH)]


def torchs(make: Any, warmup_steps: int = 0) -> list[float]:
    """The same by torch's schedulers."""
    optimizer = optim.SGD([nn.Parameter(torch.zeros(1))], lr=PEAK)

    def scheduler() -> LRScheduler:
        if not warmup_steps:
            return make(optimizer)
        rise = LinearLR(optimizer, start_factor=1 / warmup_steps, total_iters=warmup_steps - 1)
        return SequentialLR(optimizer, [rise, make(optimizer)], [warmup_steps])

    def each(scheduler: LRScheduler) -> Iterator[float]:
        for _ in range(EPOCHS * STEPS_PER_EPOCH):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()

    return list(each(scheduler()))


def test_without_a_schedule_every_step_has_the_optimisers_own_rate():
    assert learning_rates(a_trial(optimizer={**SGD, "schedule": a_schedule("constant")}), STEPS_PER_EPOCH) is None


def test_the_rate_rises_in_equal_steps_and_warm_up_ends_at_the_highest():
    warmup = rates(a_schedule("constant", warmup_epochs=0.8))
    assert warmup[:6] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_cosine_is_torchs():
    expected = torchs(lambda optimizer: CosineAnnealingLR(optimizer, EPOCHS * STEPS_PER_EPOCH))
    assert rates(a_schedule("cosine")) == pytest.approx(expected)


def test_cosine_after_a_warm_up_is_torchs():
    expected = torchs(lambda optimizer: CosineAnnealingLR(optimizer, (EPOCHS - 2) * STEPS_PER_EPOCH), warmup_steps=10)
    assert rates(a_schedule("cosine", warmup_epochs=2)) == pytest.approx(expected)


@pytest.mark.parametrize(("given", "gamma"), [(None, 0.1), (0.5, 0.5)])
def test_steps_at_milestones_are_torchs(given, gamma):
    expected = torchs(lambda optimizer: MultiStepLR(optimizer, [2 * STEPS_PER_EPOCH, 4 * STEPS_PER_EPOCH], gamma))
    assert rates(a_schedule("step", milestones=[2, 4], gamma=given)) == pytest.approx(expected)


def test_a_training_of_steps_falls_over_its_steps():
    by_steps = rates(a_schedule("cosine"), epochs=None, warmup_epochs=None, steps=30, warmup_steps=3)
    assert by_steps == rates(a_schedule("cosine"))


# Scaling with the batch


def test_the_rate_grows_with_the_global_batch_if_it_is_meant_for_one():
    scaled = {**SGD, "lr": 0.1, "lr_reference_batch": 256}
    assert a_trial(devices_per_node=8, batch_size_per_device=400, optimizer=scaled).learning_rate == 0.1 * 3200 / 256
    assert a_single_trial(batch_size_per_device=256, optimizer=scaled).learning_rate == 0.1
    assert a_trial(devices_per_node=8, optimizer={**scaled, "lr_reference_batch": None}).learning_rate == 0.1


def test_before_its_batch_is_known_a_trial_has_no_scaled_rate():
    scaled = {**SGD, "lr_reference_batch": 256}
    assert a_trial(scaling="largest", batch_size_per_device=None, optimizer=scaled).learning_rate is None


def test_no_learning_rate_decides_which_batch_fits():
    one, other = (
        a_trial(optimizer={**SGD, "lr_reference_batch": 256, "schedule": a_schedule(kind)})
        for kind in ("constant", "cosine")
    )
    assert probe_of(one) == probe_of(other)


# What a training does


def test_one_process_learns_what_torchs_own_loop_does(data: Path, tmp_path: Path):
    """lr 0.02 for 32 samples, 64 in a step: 0.04 at the end of the warm-up, after 3 of 10 steps."""
    optimizer = {**SGD, "lr": 0.02, "momentum": 0.9, "lr_reference_batch": 32}
    optimizer["schedule"] = a_schedule("cosine", warmup_epochs=0.3)
    sizes = {"batch_size_per_device": 64, "steps": 10, "warmup_steps": 0, "evaluate": False}
    trial = small_trial("single", 1, optimizer=optimizer, **sizes)
    done = trained(trial, data, tmp_path, inject="keep_weights")

    stream = TrainingStream(trial, data, 0, ONE.device)
    plain = Training(small_trial("single", 1, optimizer=SGD, **sizes), stream.samples, ONE, stream.steps_per_epoch)
    model, loss_of = plain.plain_model, plain.loss_function
    sgd = optim.SGD(model.parameters(), lr=0.04, momentum=0.9)
    rise = LinearLR(sgd, start_factor=1 / 3, total_iters=2)
    scheduler = SequentialLR(sgd, [rise, CosineAnnealingLR(sgd, 7)], [3])
    for images, labels in stream.batches(0, 10):
        sgd.zero_grad()
        loss_of(model(images), labels).backward()
        sgd.step()
        scheduler.step()
    expected = np.concatenate([weight.detach().flatten().numpy() for weight in model.parameters()])
    found = np.concatenate([np.asarray(weight) for weight in done.found("weights")[0]])
    np.testing.assert_allclose(found, expected, atol=1e-6)

    (segment,) = done.record.segments
    assert done.record.trial.learning_rate == pytest.approx(0.04)
    assert segment.learning_rate == pytest.approx(0.04 * (1 + np.cos(np.pi * 6 / 7)) / 2)


def test_a_step_that_a_scaler_skips_moves_no_schedule(data: Path):
    """Its weights did not move either: what comes next is still that step."""
    optimizer = {**SGD, "lr": 1.0, "schedule": a_schedule("constant", warmup_epochs=1)}
    trial = small_trial("single", 1, optimizer=optimizer)
    stream = TrainingStream(trial, data, 0, ONE.device)
    training = Training(trial, stream.samples, ONE, steps_per_epoch=10)
    training.precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    training.precision.count_steps_of(training.replica.optimizer)
    seen = []
    for number, (images, labels) in enumerate(stream.batches(0, 3)):
        training.gradients_of((images, labels))
        if number == 1:
            next(training.plain_model.parameters()).grad.fill_(float("inf"))
        training.update()
        seen.append(training.replica.learning_rate)
    assert training.skipped_steps == 1
    assert seen == pytest.approx([0.1, 0.2, 0.2])


# The config


def planned(**optimizer: Any) -> Any:
    return plan_trials(load_config(changed(a_config(), ["experiments", "quick", "workload", "optimizer"], optimizer)))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (
            {"kind": "cosinus"},
            "experiments.quick.workload.optimizer.schedule.kind = 'cosinus': not known: did you mean",
        ),
        ({"kind": "step"}, "kind: step needs milestones; give them"),
        ({"kind": "step", "milestones": [60, 30]}, "give them in rising order, each once"),
        ({"kind": "step", "milestones": [0]}, "greater than 0"),
        ({"kind": "cosine", "milestones": [30]}, "milestones goes with kind: step; remove it"),
        ({"gamma": 0.1}, "gamma goes with kind: step; remove it"),
        ({"kind": "cosine", "warmup_epochs": 3}, "warmup_epochs = 3: leaves nothing of epochs = 3 for the cosine"),
    ],
)
def test_a_schedule_that_can_not_be_is_refused_with_its_remedy(schedule, said):
    with pytest.raises(ConfigError) as refused:
        planned(schedule=schedule)
    assert said in str(refused.value)


def test_the_first_epochs_of_a_long_recipe_can_be_measured():
    """A benchmark of 3 epochs runs the beginning of 90: neither its warm-up nor its milestones need to come."""
    assert planned(name="sgd", lr=0.1, schedule={"kind": "step", "warmup_epochs": 5, "milestones": [30, 60, 80]})
