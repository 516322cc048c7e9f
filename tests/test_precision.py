"""Number formats: the order of a scaled step, skipped steps, and what compiling and memory formats leave as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from launching import Trained, small_trial, trained
from torch import nn

from dpscale.precision import Precision

CPU = torch.device("cpu")


class Scaled:
    """One weight of 1 under SGD with a learning rate of 1, trained in fp16 with a gradient scaler."""

    def __init__(self, clip_norm: float | None = None) -> None:
        self.weight = nn.Parameter(torch.ones(1))
        self.optimizer = torch.optim.SGD([self.weight], lr=1.0)
        self.precision = Precision("fp16", CPU)
        self.precision.count_steps_of(self.optimizer)
        self.clip_norm = clip_norm

    def step(self, gradient: float) -> None:
        self.precision.updates += 1
        self.precision.scaler.scale(self.weight.sum() * gradient).backward()
        self.precision.step(self.optimizer, self.clip_norm)
        self.optimizer.zero_grad(set_to_none=True)


def test_a_step_is_taken_with_the_gradient_as_it_was_before_scaling():
    training = Scaled()
    training.step(0.25)
    assert training.weight.item() == 0.75
    assert training.precision.skipped_steps == 0


def test_gradients_are_clipped_after_they_are_unscaled():
    training = Scaled(clip_norm=0.5)
    training.step(4.0)
    assert training.weight.item() == pytest.approx(0.5, abs=1e-4)  # 1 - 0.5, not 1 - 0.5 / scale
    training.step(0.25)
    assert training.weight.item() == pytest.approx(0.25, abs=1e-4)  # small ones stay as they are


@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_a_step_with_an_infinite_gradient_is_skipped_counted_and_lowers_the_scale(clip_norm):
    training = Scaled(clip_norm)
    training.step(0.25)
    scale = training.precision.scaler.get_scale()
    training.step(float("inf"))
    assert training.weight.item() == 0.75
    assert training.precision.skipped_steps == 1
    assert training.precision.scaler.get_scale() < scale
    training.step(0.25)
    assert training.weight.item() == 0.5
    assert training.precision.skipped_steps == 1


@pytest.mark.parametrize("name", ["fp32", "tf32", "bf16"])
def test_nothing_is_scaled_and_no_step_skipped_in_other_formats(name):
    precision = Precision(name, CPU)
    assert not precision.scaler.is_enabled()
    assert precision.skipped_steps is None


def test_a_strategy_that_casts_itself_is_left_alone():
    precision = Precision("bf16", CPU, casts_itself=True)
    with precision.autocast():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def losses(done: Trained) -> np.ndarray:
    return done.steps.to_pandas()["loss"].to_numpy()


def test_clipping_shortens_steps(data: Path, tmp_path: Path):
    """Against a training that goes nowhere, as the loss differs between batches anyway."""

    def last_loss(lr: float, clip_norm: float | None) -> float:
        optimizer = {"name": "sgd", "lr": lr, "clip_norm": clip_norm}
        return losses(trained(small_trial(optimizer=optimizer), data, tmp_path / f"{lr}-{clip_norm}"))[-1]

    still, free, clipped = last_loss(1e-12, None), last_loss(0.2, None), last_loss(0.2, 1e-3)
    assert 0 < abs(clipped - still) < 0.1 * abs(free - still)


@pytest.mark.parametrize("strategy", ["single", "ddp"])
def test_a_compiled_model_learns_the_same_and_its_compilation_is_no_part_of_a_step(
    strategy: str, data: Path, tmp_path: Path
):
    trial = {"strategy": strategy, "devices": 1 if strategy == "single" else 2, "timeout_s": 300.0}
    plain = trained(small_trial(**trial), data, tmp_path / "plain")
    done = trained(small_trial(**trial, compile=True), data, tmp_path / "compiled")
    np.testing.assert_allclose(losses(done), losses(plain), atol=1e-4)
    assert plain.record.compile_time_s is None
    slowest_step_s = max(done.steps.to_pandas().filter(like="_s").drop(columns="samples", errors="ignore").sum(axis=1))
    assert done.record.compile_time_s > 10 * slowest_step_s
    assert done.record.effective_precision == plain.record.effective_precision


def test_channels_last_is_another_layout_of_the_same_training(data: Path, tmp_path: Path):
    plain, other = (
        losses(trained(small_trial("single", 1, channels_last=last), data, tmp_path / str(last)))
        for last in (False, True)
    )
    np.testing.assert_allclose(other, plain, atol=1e-4)
