"""The layers of the emulated device, on a clock that only sleeping moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dpscale.emulation import clock
from dpscale.emulation.layers import SleepingLayer, SleepingModel


class FakeClock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.s = 100.0
        monkeypatch.setattr(clock, "now_s", lambda: self.s)
        monkeypatch.setattr(clock, "sleep_until", self.sleep_until)

    def sleep_until(self, moment_s: float) -> None:
        self.s = max(self.s, moment_s)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock(monkeypatch)


def a_model(**changes: Any) -> SleepingModel:
    """Four layers; forward takes 10 ms + 1 ms per sample, backward twice that."""
    values: dict[str, Any] = {
        "classes": 5,
        "layers": 4,
        "weights_per_layer": 7,
        "forward_s": (0.01, 0.001),
        "backward_s": (0.02, 0.002),
        "jitter": 0.0,
    }
    return SleepingModel(**values | changes)


def test_forward_and_backward_take_their_time_for_the_batch_and_for_each_sample(fake: FakeClock):
    started_s = fake.s
    loss = a_model()(torch.randn(8, 3)).sum()
    forward_s = fake.s - started_s
    loss.backward()
    assert forward_s == pytest.approx(0.018)
    assert fake.s - started_s - forward_s == pytest.approx(0.036)


def test_gradients_are_ready_layer_by_layer_from_the_last_on(fake: FakeClock):
    model, ready = a_model(), list[tuple[int, float]]()
    for number, weights in enumerate(model.layers):
        weights.register_post_accumulate_grad_hook(lambda weights, number=number: ready.append((number, fake.s)))
    loss = model(torch.randn(8, 3)).sum()
    began_s = fake.s
    loss.backward()
    assert [number for number, _ in ready] == [3, 2, 1, 0]
    assert [moment - began_s for _, moment in ready] == pytest.approx([0.009, 0.018, 0.027, 0.036])


def test_what_the_host_does_between_layers_hides_behind_the_device(fake: FakeClock):
    model = a_model()
    for weights in model.layers:
        weights.register_post_accumulate_grad_hook(lambda weights: fake.sleep_until(fake.s + 0.005))
    loss = model(torch.randn(8, 3)).sum()
    began_s = fake.s
    loss.backward()
    assert fake.s - began_s == pytest.approx(0.036 + 0.005)  # that after the last layer alone


def times_of_steps(fake: FakeClock, seed: int) -> list[float]:
    model, times_s = a_model(jitter=0.05), []
    torch.manual_seed(seed)
    for _ in range(200):
        started_s = fake.s
        model(torch.zeros(8, 3)).sum().backward()
        times_s.append(fake.s - started_s)
    return times_s


def test_each_step_of_each_rank_has_a_pace_of_its_own_that_its_seed_decides(fake: FakeClock):
    first, second = (times_of_steps(fake, seed) for seed in (0, 1))
    assert times_of_steps(fake, 0) == pytest.approx(first)
    assert np.mean(first) == pytest.approx(0.054, rel=0.02)
    assert np.std(first) == pytest.approx(0.05 * 0.054, rel=0.2)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.3


def test_a_layers_gradients_are_those_of_its_function():
    class NoTime:
        def take(self, seconds: float) -> None:
            pass

    def layer(inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return SleepingLayer.apply(inputs, weights, NoTime(), 0.0)

    inputs = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (inputs, weights))
    torch.testing.assert_close(layer(inputs, weights), inputs * (1 + weights.mean()))
