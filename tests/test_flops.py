"""How many operations a model's training asks for: counts by hand, on tensors that have no content."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dpscale import own
from dpscale.flops import NotCounted, flops_per_sample
from dpscale.workloads.samples import Samples

DIGITS = Samples("images", (1, 28, 28), 10)


def test_a_convnets_operations_are_those_of_its_layers_counted_by_hand() -> None:
    """2 for each product that is added. Backward has two products for each of forward, but for the images' own gradient."""
    first, second = 2 * (1 * 16 * 9) * 26 * 26, 2 * (16 * 32 * 9) * 24 * 24
    linear = 2 * (4608 * 64 + 64 * 10)
    assert flops_per_sample("convnet", {}, DIGITS) == 2 * first + 3 * (second + linear)


def test_dropout_adds_none() -> None:
    assert flops_per_sample("convnet", {"dropout": False}, DIGITS) == flops_per_sample("convnet", {}, DIGITS)


def test_resnet50_asks_for_what_its_authors_say_of_forward_and_thrice_that_with_backward() -> None:
    """He et al. (2015), table 1: 3.8 x 10^9 multiply-adds; torchvision's has its strides in other places, and 4.1."""
    flops = flops_per_sample("resnet50", {}, Samples("images", (3, 224, 224), 1000))
    assert flops == pytest.approx(3 * 2 * 4.1e9, rel=0.02)


def test_attention_counts_by_the_length_of_sequences() -> None:
    """A layer of width 64: 12 x 64^2 weights for each token; scores, and sums by them, of each token with all 16; logits."""
    tokens, width, vocabulary = 16, 64, 32
    weights = 2 * tokens * 12 * width**2
    attention = 2 * 2 * tokens * tokens * width
    logits = 2 * tokens * width * vocabulary
    counted = flops_per_sample(
        "gpt", {"layers": 1, "width": width, "heads": 2}, Samples("tokens", (tokens,), vocabulary)
    )
    assert counted == 3 * (weights + attention + logits)


def test_a_model_that_sleeps_is_not_counted() -> None:
    with pytest.raises(NotCounted, match="it computes nothing"):
        flops_per_sample("emulated", {}, DIGITS)


OWN = """
from torch import nn

def counted(classes, sample_shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))

class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(784, 10)

    def forward(self, images):
        output = self.linear(images.flatten(1))
        return output * output.max().item()

def looks(classes, sample_shape):
    return Looks()
"""


def test_a_model_of_ones_own_is_counted_unless_it_looks_at_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models_to_count.py").write_text(OWN)
    monkeypatch.setenv(own.FOLDERS, str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert flops_per_sample("models_to_count:counted", {}, DIGITS) == 2 * 2 * 784 * 10
    with pytest.raises(NotCounted, match=r"models_to_count:looks can't be run on tensors without content"):
        flops_per_sample("models_to_count:looks", {}, DIGITS)


def test_nothing_is_left_of_the_counting() -> None:
    flops_per_sample("mlp", {}, DIGITS)
    assert torch.empty(1).device.type == "cpu"
