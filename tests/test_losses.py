"""What takes a machine's efficiency: each part by what it adds against one device, and the largest is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import TRUE_NETWORK, a_network, a_profile, fabricated

from dpscale.scaling_model.calibration import calibrate
from dpscale.scaling_model.links import Network
from dpscale.scaling_model.losses import NOTHING, Loss, largest_losses, losses, scaling_efficiency
from dpscale.scaling_model.prediction import Profile, Setting, predict
from dpscale.scaling_model.what_if import answers, knee, placements

WEAK = Setting(samples=64_000, batch=16, scaling="weak")
STRONG = Setting(samples=64_000, batch=1024, scaling="strong")
FREE = Network(
    launch_s=0.0,
    intra_latency_s=0.0,
    inter_latency_s=0.0,
    intra_bandwidth_B_per_s=1e18,
    inter_bandwidth_B_per_s=1e18,
)


def only(**parts) -> Profile:
    """A workload of which nothing grows but these parts."""
    none = {
        "fixed_s": np.zeros(1),
        "deviation_share": np.zeros((1, 1)),
        "contention_share": np.zeros((1, 2)),
        "stretch": np.zeros(1),
        "epoch_fixed_s": np.zeros(1),
    }
    return replace(a_profile(), **{**none, **parts})


def largest(profile: Profile, network: Network, setting: Setting, nodes: int, each: int) -> Loss:
    found = predict(profile, network, setting, np.array([nodes]), np.array([each]))
    (loss,) = largest_losses(profile, network, setting, found)
    return loss


@pytest.mark.parametrize(
    ("name", "profile", "network", "setting"),
    [
        ("contention", only(contention_share=np.array([[0.5, 0.9]])), FREE, WEAK),
        ("exposed_communication", only(), a_network(inter_bandwidth_B_per_s=1e7), WEAK),
        ("straggler", only(deviation_share=np.array([[-0.1, 0.0, 0.1]])), FREE, WEAK),
        ("stretch", only(stretch=np.array([5.0])), TRUE_NETWORK, WEAK),
        ("compression", only(), FREE, replace(WEAK, compression_s_per_byte=1e-8)),
        ("fixed_cost_per_step", only(fixed_s=np.array([0.02])), FREE, STRONG),
        ("fixed_cost_per_epoch", only(epoch_fixed_s=np.array([9.0])), FREE, WEAK),
        ("incomplete_last_step", only(), FREE, replace(WEAK, samples=16 * 8 + 1)),
    ],
)
def test_what_alone_grows_is_the_loss_and_takes_all_that_is_lost(name, profile, network, setting):
    found = predict(profile, network, setting, np.array([2]), np.array([4]))
    lost = 1 - scaling_efficiency(profile, network, setting, found)[0]
    loss = largest(profile, network, setting, 2, 4)
    assert loss.name == name
    assert 0.01 < loss.share <= lost + 1e-9 or name == "stretch"  # which hides some of the exchange


def test_on_one_device_and_where_nothing_grows_there_is_none_to_speak_of():
    assert largest(a_profile(), TRUE_NETWORK, WEAK, 1, 1) == Loss(NOTHING, None)
    assert largest(only(), FREE, WEAK, 2, 4) == Loss(NOTHING, None)


@given(
    st.sampled_from([(1, 2), (1, 4), (2, 4), (16, 8)]),
    st.sampled_from(["weak", "strong"]),
    st.booleans(),
    st.integers(5_000, 100_000),
)
def test_losses_are_together_what_the_efficiency_lacks(topology, scaling, drop_last, samples):
    setting = Setting(samples=samples, batch=2048 if scaling == "strong" else 16, scaling=scaling, drop_last=drop_last)
    nodes, each = (np.array([count]) for count in topology)
    found = predict(a_profile(), TRUE_NETWORK, setting, nodes, each)
    together = sum(losses(a_profile(), TRUE_NETWORK, setting, found).values())
    efficiency = scaling_efficiency(a_profile(), TRUE_NETWORK, setting, found)
    assert together == pytest.approx(1 - efficiency, abs=1e-9)


@pytest.mark.parametrize(
    ("network", "setting", "loss"),
    [
        (TRUE_NETWORK, WEAK, "exposed_communication"),
        (FREE, STRONG, "fixed_cost_per_step"),
    ],
)
def test_the_knee_says_what_is_lost_there(network, setting, loss):
    """It was "compute" at every knee: there the efficiency is a half at least, so what computes takes most of the time."""
    found = knee(answers(calibrate(fabricated(noise=0.0), draws=5), network, setting, placements(1024, 1)))
    assert found.limited_by == loss
    assert 0.01 < found.limited_by_share < 0.5
