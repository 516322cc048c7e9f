"""What was put into measurements is found in them, and what they can't tell is refused by its name."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from measurements import TRUE_CONTENTION, TRUE_NETWORK, a_profile, fabricated

from dpscale.errors import UserError
from dpscale.scaling_model import network_fit
from dpscale.scaling_model.calibration import calibrate
from dpscale.scaling_model.links import all_reduce_s
from dpscale.scaling_model.measurements import Measurements
from dpscale.scaling_model.prediction import Setting, predict

SETTING = Setting(samples=25_600, batch=16, scaling="weak")
EIGHT = (np.array([2]), np.array([4]))


def within(share, value):
    return pytest.approx(value, rel=share)


@pytest.mark.parametrize("seed", range(5))
def test_each_parameter_is_recovered_within_a_tenth_from_data_with_three_percent_of_noise(seed):
    found = calibrate(fabricated(noise=0.03, seed=seed), draws=20)
    profile, truth = found.profile, a_profile()
    for name in ("fixed_s", "per_sample_s", "stretch", "epoch_fixed_s"):
        assert getattr(profile, name)[0] == within(0.1, getattr(truth, name)[0]), name
    assert profile.ready_share[0] == within(0.1, truth.ready_share[0])
    assert profile.contention_share[0] == within(0.1, np.array(list(TRUE_CONTENTION.values())))
    assert np.std(profile.deviation_share[0]) == within(0.1, np.std(truth.deviation_share))
    for name, value in vars(TRUE_NETWORK).items():
        assert np.atleast_1d(getattr(found.network, name))[0] == within(0.1, value), name


def test_without_noise_the_epoch_on_more_devices_is_what_the_true_parts_give():
    found = calibrate(fabricated(noise=0.0), draws=5)
    mine = predict(found.profile, found.network, SETTING, *EIGHT).epoch_time_s[0, 0]
    true = predict(a_profile(), TRUE_NETWORK, SETTING, *EIGHT).epoch_time_s[0, 0]
    assert mine == within(0.005, true)


def slowed_alone(measured):
    """(Exchanges alone, of which each message costs twice as much as in a step; buckets in a step)."""
    slow_network = replace(TRUE_NETWORK, launch_s=4e-4, intra_latency_s=1e-4, inter_latency_s=6e-4)
    alone = [
        replace(one, time_s=float(all_reduce_s(one.nbytes, one.nodes, one.devices_per_node, slow_network)))
        for one in measured.exchanges
    ]
    in_step = [replace(one, in_step=True) for one in measured.exchanges if one.nbytes in (4**7, 4**8)]
    return alone, in_step


def test_what_an_exchange_costs_beside_its_bytes_is_what_it_costs_in_a_step():
    alone, in_step = slowed_alone(fabricated(noise=0.0))
    found = network_fit.fit([*alone, *in_step])
    for name, value in vars(TRUE_NETWORK).items():
        assert getattr(found, name) == within(0.001, value), name
    assert network_fit.fit(alone).intra_latency_s == within(0.001, 2 * TRUE_NETWORK.intra_latency_s)


def test_what_a_bucket_costs_that_waits_for_no_other_is_found_apart():
    """Else the topologies whose buckets are queued would look quicker for their size, and larger ones with them."""
    alone, in_step = slowed_alone(fabricated(noise=0.0))
    queued = [replace(one, queued=True) for one in in_step if one.nodes * one.devices_per_node == 4]
    begun = [replace(one, time_s=one.time_s + 1e-3) for one in in_step]
    found = network_fit.fit([*alone, *begun, *queued])
    assert found.start_s == within(0.001, 1e-3)
    assert found.launch_s == within(0.001, TRUE_NETWORK.launch_s)
    assert found.intra_latency_s == within(0.001, TRUE_NETWORK.intra_latency_s)


def test_without_buckets_of_both_kinds_the_start_is_part_of_every_exchange():
    alone, in_step = slowed_alone(fabricated(noise=0.0))
    found = network_fit.fit([*alone, *(replace(one, time_s=one.time_s + 1e-3) for one in in_step)])
    assert found.start_s == 0.0
    assert found.launch_s == within(0.001, TRUE_NETWORK.launch_s + 1e-3)


def test_buckets_on_topologies_too_few_to_tell_latencies_apart_do_not_count():
    alone, in_step = slowed_alone(fabricated(noise=0.0))
    pairs = [one for one in in_step if (one.nodes, one.devices_per_node) == (1, 2)]
    assert network_fit.fit([*alone, *pairs]) == network_fit.fit(alone)


def test_buckets_of_one_node_say_nothing_of_what_crosses_nodes():
    alone, in_step = slowed_alone(fabricated(noise=0.0))
    one_node = [one for one in in_step if one.nodes == 1]
    assert network_fit.fit([*alone, *one_node]) == network_fit.fit(alone)


def test_the_same_seed_gives_the_same_intervals():
    intervals = []
    for seed in (1, 1, 2):
        found = calibrate(fabricated(), seed)
        intervals.append(found.interval(predict(found.profile, found.network, SETTING, *EIGHT), 80))
    assert intervals[0] == intervals[1] != intervals[2]


def test_intervals_hold_the_estimate_and_a_wider_one_holds_the_narrower():
    found = calibrate(fabricated())
    prediction = predict(found.profile, found.network, SETTING, *EIGHT)
    (low, high), (lower, higher) = (found.interval(prediction, percent) for percent in (80, 95))
    assert lower <= low <= prediction.epoch_time_s[0] <= high <= higher


def test_intervals_widen_with_each_doubling_beyond_what_was_calibrated_from():
    found = calibrate(fabricated())
    each = np.array([2, 4, 16, 64])
    prediction = predict(found.profile, found.network, SETTING, np.full(4, 2), each)
    certain = replace(prediction, epoch_time_s=np.ones_like(prediction.epoch_time_s))  # of launches alone
    low, high = found.interval(certain, 80)
    widths = np.log(high / low)
    assert widths / widths[0] == within(0.001, np.sqrt([1, 2, 4, 6]))  # 2x2 is the largest that was calibrated from


@pytest.mark.parametrize(("topology", "least", "most"), [((2, 2), 70, 95), ((2, 4), 80, 100)])
def test_an_80_percent_interval_holds_four_of_five_further_launches(topology, least, most):
    """Of 100 calibrations by other noise, each judged by one launch with as much noise as those it was calibrated from. The
    second topology is larger than all of those: what no part knows of is allowed for, and here there is nothing of it."""
    there = tuple(np.array([number]) for number in topology)
    true = predict(a_profile(), TRUE_NETWORK, SETTING, *there).epoch_time_s[0, 0]
    inside = 0
    for seed in range(100):
        found = calibrate(fabricated(noise=0.03, seed=seed), draws=100)
        low, high = found.interval(predict(found.profile, found.network, SETTING, *there), 80)
        launch = true * (1 + 0.03 * np.random.default_rng((seed, 1)).standard_normal())
        inside += bool(low[0] <= launch <= high[0])
    assert least <= inside <= most


def test_measurements_survive_json():
    measured = fabricated()
    assert Measurements.from_dict(json.loads(json.dumps(measured.as_dict()))) == measured


# What is missing is said


def refusal(measured, **changes):
    with pytest.raises(UserError) as caught:
        calibrate(replace(measured, **changes), draws=2)
    return str(caught.value)


def test_one_batch_size_asks_for_a_sweep():
    measured = fabricated()
    one = [step for step in measured.steps if step.batch_size == 16]
    assert "prediction.batch_sweep: [8, 32]" in refusal(measured, steps=one)


def test_no_step_on_one_device_asks_for_1x1():
    assert "add 1x1" in refusal(fabricated(), steps=[])


def test_no_exchange_asks_for_collectives():
    assert "collectives: {operations: [all_reduce]}" in refusal(fabricated(), exchanges=[])


def test_exchanges_on_one_number_of_devices_ask_for_another():
    text = refusal(fabricated(topologies=[(1, 1), (1, 2)]))
    assert "exchanges on 2 devices only (1x2)" in text
    assert "twice as many devices" in text


def test_exchanges_of_one_size_ask_for_several():
    measured = fabricated()
    one = [exchange for exchange in measured.exchanges if exchange.nbytes == 4**6]
    assert "collectives.sizes" in refusal(measured, exchanges=one)


def test_topologies_that_leave_latencies_tangled_ask_for_another():
    text = refusal(fabricated(topologies=[(1, 1), (1, 2), (2, 2)]))
    assert "1x2, 2x2" in text
    assert "such as 1x4 or 2x1" in text


def test_no_buckets_ask_for_explain():
    assert "explain: true" in refusal(fabricated(), bucket_bytes=[], ready_share=[])


def test_no_deviations_of_steps_ask_for_explain():
    assert "how ranks' steps differ" in refusal(fabricated(), deviation_share=[])


def test_rounds_of_other_buckets_are_refused():
    assert "a moment for each of 3 buckets" in refusal(fabricated(), ready_share=[[0.5, 0.7, 0.9], [0.5, 0.9]])


def unmeasured(measured, *topology):
    with pytest.raises(UserError) as caught:
        calibrate(measured, draws=2).refuse_unmeasured(*topology)
    return str(caught.value)


def test_one_node_says_nothing_of_several():
    assert "all exchanges were measured on one" in unmeasured(fabricated(topologies=[(1, 1), (1, 2), (1, 4)]), 2, 4)


def test_one_device_per_node_says_nothing_of_several():
    assert "no exchange within a node" in unmeasured(fabricated(topologies=[(1, 1), (2, 1), (4, 1)]), 2, 4)


@pytest.mark.parametrize("measured", [[(1, 1), (2, 1), (4, 1)], [(1, 1), (2, 1), (2, 2), (4, 1)]])
def test_several_nodes_say_nothing_of_one_whose_links_they_never_fill(measured):
    assert "all exchanges were measured between nodes" in unmeasured(fabricated(topologies=measured), 1, 8)


@pytest.mark.parametrize(("nodes", "each"), [(2, 8), (8, 2), (8, 1)])
def test_exchanges_between_nodes_are_enough_for_several_nodes(nodes, each):
    """Latencies within a node are told by those of 2x2, and its bandwidth plays no part."""
    calibrate(fabricated(topologies=[(1, 1), (2, 1), (2, 2), (4, 1)]), draws=2).refuse_unmeasured(nodes, each)


def test_without_contention_measured_ranks_of_one_node_are_not_predicted():
    assert "what they cost each other" in unmeasured(replace(fabricated(), contention=[]), 1, 4)


def test_without_an_explained_exchange_none_is_predicted():
    assert "slows the computation" in unmeasured(replace(fabricated(), stretch=[]), 2, 1)


def test_what_was_measured_is_not_refused():
    calibrate(fabricated(), draws=2).refuse_unmeasured(8, 4)
