"""Every row of MODELS gives logits for the samples that it takes, and says what else it does not take."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from factories import a_single_trial, a_trial
from torch import nn

from dpscale.errors import ConfigError, UserError
from dpscale.training import build_model
from dpscale.typed import validated
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.datasets.synthetic_tokens import ENTROPY_NATS
from dpscale.workloads.models import MODELS, torchvision_classifier
from dpscale.workloads.models.base import cross_entropy
from dpscale.workloads.samples import Samples
from dpscale.world import World

DIGITS = Samples("images", (1, 28, 28), 10)
CIFAR = Samples("images", (3, 32, 32), 100)
TOKENS = Samples("tokens", (12,), 50)
OPTIONS = {"torchvision": {"name": "mobilenet_v3_small"}}  # of a row that can't do without
RESNETS = [name for name in MODELS if name.startswith("resnet")]


def built(name: str, samples: Samples, /, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name].build(validated(MODELS[name].options, OPTIONS.get(name, {}) | options, name), samples)


def batch_of(samples: Samples, size: int = 2) -> torch.Tensor:
    if samples.kind == "tokens":
        return torch.randint(samples.classes, (size, *samples.shape))
    return torch.randn(size, *samples.shape)


def refusal(name: str, samples: Samples, /, **options: Any) -> str | None:
    return MODELS[name].refusal(validated(MODELS[name].options, OPTIONS.get(name, {}) | options, name), samples)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On a busy machine threads of small operations wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def a_world(rank: int = 0, size: int = 1) -> World:
    return World(rank, rank, node_rank=0, size=size, devices_per_node=size, device=torch.device("cpu"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_logits_for_the_samples_that_it_takes(name):
    samples = next(samples for samples in (CIFAR, DIGITS, TOKENS) if refusal(name, samples) is None)
    inputs = batch_of(samples)
    labels = inputs if samples.kind == "tokens" else torch.zeros(2, dtype=torch.int64)
    model = built(name, samples)
    output = model(inputs)
    assert output.shape == (*labels.shape, samples.classes)
    losses = MODELS[name].loss(output, labels, reduction="none")
    assert losses.shape == labels.shape
    assert losses.mean().item() == pytest.approx(MODELS[name].loss(output, labels).item(), rel=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_images_are_no_tokens(name):
    other = TOKENS if MODELS[name].takes == "images" else CIFAR
    assert refusal(name, other).startswith(f"takes {'images' if other is TOKENS else 'tokens'}")


def test_a_model_of_one_shape_says_which():
    assert refusal("convnet", CIFAR) == "takes images of (1, 28, 28)"


def test_a_rank_refuses_data_that_do_not_fit_its_model():
    with pytest.raises(
        UserError, match=r"has images of \(3, 32, 32\), but model 'convnet' takes images of \(1, 28, 28\)"
    ):
        build_model(a_single_trial(dataset="my.data:pictures"), CIFAR, a_world())


# mlp


def test_an_mlp_is_as_wide_and_deep_as_asked_for():
    layers = [layer for layer in built("mlp", CIFAR, width=7, depth=3) if isinstance(layer, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [(7, 3072), (7, 7), (7, 7), (100, 7)]


# ResNets


@pytest.mark.parametrize("name", RESNETS)
def test_a_resnet_has_torchvisions_weights(name):
    from torchvision.models import get_model

    with torch.device("meta"):  # shapes alone
        ours, theirs = built(name, Samples("images", (3, 224, 224), 1000)), get_model(name, weights=None)
    assert [tuple(weight.shape) for weight in ours.parameters()] == [tuple(w.shape) for w in theirs.parameters()]


@pytest.mark.parametrize(("stem", "size"), [("imagenet", 8), ("cifar", 32)])
def test_the_stem_decides_how_small_an_image_becomes_before_the_first_block(stem, size):
    model = built("resnet18", CIFAR, stem=stem)
    sizes = []
    model.layer1.register_forward_hook(lambda module, inputs, output: sizes.append(inputs[0].shape[-1]))
    assert model(batch_of(CIFAR)).shape == (2, 100)
    assert sizes == [size]


@pytest.mark.parametrize("stem", ["imagenet", "cifar"])
def test_a_resnet_takes_grey_images(stem):
    assert built("resnet18", DIGITS, stem=stem)(batch_of(DIGITS)).shape == (2, 10)


@pytest.mark.parametrize(("zero", "weight"), [(True, 0.0), (False, 1.0)])
def test_residual_branches_begin_at_zero_if_asked_for(zero, weight):
    last_norm = built("resnet18", CIFAR, zero_init_residual=zero).layer1[0].bn2
    assert set(last_norm.weight.tolist()) == {weight}


# any classifier of torchvision


def test_the_names_of_torchvisions_classifiers_are_those_of_the_torchvision_that_is_pinned():
    from torchvision import models

    assert sorted(torchvision_classifier.NAMES) == models.list_models(module=models)


FAMILIES = ["convnext_tiny", "densenet121", "googlenet", "maxvit_t", "swin_v2_t", "squeezenet1_0", "vit_b_16"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_classifier_is_built_for_the_classes_and_the_size_that_there_are(name):
    samples = Samples("images", (3, 224, 224), 7)
    with torch.device("meta"):
        assert built("torchvision", samples, name=name)(torch.empty(2, *samples.shape)).shape == (2, 7)


def test_a_classifier_that_takes_no_such_small_images_says_so_before_it_is_trained():
    with pytest.raises(UserError, match=r"inception_v3 does not take images of \(3, 32, 32\): .*; use larger ones"):
        built("torchvision", CIFAR, name="inception_v3")


def test_a_classifier_takes_coloured_images():
    assert refusal("torchvision", DIGITS) == "takes images of 3 channels"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "eficientnet_b0"}, "torchvision has no classifier of that name; did you mean 'efficientnet_b0'?"),
        ({}, "torchvision.name: this key is required"),
    ],
)
def test_a_name_that_torchvision_does_not_have_is_refused_by_the_plan(options, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        validated(MODELS["torchvision"].options, options, "torchvision")


# gpt


def test_a_token_is_predicted_from_those_before_it_alone():
    model, tokens = built("gpt", TOKENS), batch_of(TOKENS)
    changed = tokens.clone()
    changed[:, 8] = (tokens[:, 8] + 1) % TOKENS.classes
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.allclose(before[:, 8:], after[:, 8:])


def test_a_layer_computes_what_torchs_own_transformer_layer_does():
    from dpscale.workloads.transformer import Layer

    torch.manual_seed(0)
    ours = Layer(width=16, heads=4)
    theirs = nn.TransformerEncoderLayer(16, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    parts = {
        theirs.norm1: ours.attention_norm,
        theirs.norm2: ours.mlp_norm,
        theirs.self_attn.out_proj: ours.attention.output,
        theirs.linear1: ours.expand,
        theirs.linear2: ours.contract,
    }
    for their_part, our_part in parts.items():
        their_part.load_state_dict(our_part.state_dict())
    packed = ours.attention.queries_keys_values
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(packed.weight)
        theirs.self_attn.in_proj_bias.copy_(packed.bias)
    x, mask = torch.randn(2, 5, 16), nn.Transformer.generate_square_subsequent_mask(5)
    torch.testing.assert_close(ours(x), theirs(x, src_mask=mask, is_causal=True))


def test_an_untrained_gpt_knows_nothing_and_does_not_pretend_to():
    inputs = batch_of(TOKENS, 64)
    loss = cross_entropy(built("gpt", TOKENS, layers=4)(inputs[:, :-1]), inputs[:, 1:])
    assert loss.item() == pytest.approx(math.log(TOKENS.classes), rel=0.02)


def test_the_residual_stream_starts_no_larger_with_more_layers():
    shallow, deep = (
        built("gpt", TOKENS, layers=layers, width=128).layers[0].contract.weight.std().item() for layers in (1, 16)
    )
    assert shallow / deep == pytest.approx(4, rel=0.05)


def test_a_gpt_takes_sequences_up_to_its_context():
    assert refusal("gpt", TOKENS, context=11) == "takes at most context = 11 tokens"
    assert refusal("gpt", TOKENS, context=12) is None
    assert built("gpt", TOKENS, context=20).positions.num_embeddings == 20
    assert built("gpt", TOKENS).positions.num_embeddings == 12


def test_heads_share_the_width():
    with pytest.raises(ConfigError, match="width = 65 does not divide by heads = 2"):
        validated(MODELS["gpt"].options, {"width": 65}, "model_options")


def test_a_gpt_learns_the_chain_and_nothing_that_is_not_there():
    config = DatasetConfig(train_samples=512, test_samples=128, vocabulary=16, context=16)
    splits = {
        split: [torch.from_numpy(array).long() for array in arrays]
        for split, arrays in DATASETS["synthetic_tokens"].read(config).items()
    }
    model = built("gpt", DATASETS["synthetic_tokens"].samples(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    inputs, labels = splits["train"]
    for step in range(60):
        rows = torch.arange(64) + 64 * (step % 8)
        optimizer.zero_grad()
        cross_entropy(model(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        inputs, labels = splits["test"]
        output = model(inputs)
    assert ENTROPY_NATS * 0.9 < cross_entropy(output, labels).item() < 0.5 * math.log(16)
    accuracy = (output.argmax(dim=-1) == labels).float().mean().item()
    assert 0.6 < accuracy < 0.8


def test_the_same_seed_builds_the_same_model_on_every_rank():
    def weights(rank: int) -> np.ndarray:
        model = build_model(a_trial(model="gpt", model_options={}), TOKENS, a_world(rank, 2))
        return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()

    assert np.array_equal(weights(0), weights(1))
