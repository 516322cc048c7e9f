"""The scaling model gives what closed forms give, and behaves as links and buckets must."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import TRUE_NETWORK, a_network, a_profile, fabricated

from dpscale.errors import UserError
from dpscale.scaling_model.baselines import baseline_epoch_times_s
from dpscale.scaling_model.calibration import calibrate
from dpscale.scaling_model.compute import contention_at, expected_largest, fitted_step
from dpscale.scaling_model.links import Network, all_reduce_s, ring_s, tree_s
from dpscale.scaling_model.measurements import Launch
from dpscale.scaling_model.overlap import exposed_s, finished_s, in_other_buckets
from dpscale.scaling_model.prediction import PARTS, Setting, predict
from dpscale.scaling_model.what_if import answers, fastest, knee, placements

EXACT = pytest.approx
MILLION = 1_000_000


def exactly(value):
    return EXACT(value, rel=1e-9, abs=1e-12)


# Links


def test_a_ring_of_four_devices_takes_six_steps_and_one_and_a_half_times_the_bytes():
    network = a_network(launch_s=1e-3, intra_latency_s=1e-4, intra_bandwidth_B_per_s=1e9)
    assert ring_s(MILLION, 1, 4, network) == exactly(1e-3 + 6 * 1e-4 + 1.5 * MILLION / 1e9)


def test_a_ring_over_two_nodes_crosses_between_them_twice():
    network = a_network(launch_s=0, intra_latency_s=1e-4, inter_latency_s=1e-2, inter_bandwidth_B_per_s=1e8)
    assert ring_s(MILLION, 2, 4, network) == exactly((14 - 2) * 1e-4 + 2 * 1e-2 + 2 * 7 / 8 * MILLION / 1e8)


def test_a_tree_over_eight_nodes_goes_up_and_down_three_levels():
    network = a_network(launch_s=0, intra_latency_s=1e-4, inter_latency_s=1e-2, inter_bandwidth_B_per_s=1e8)
    assert tree_s(MILLION, 8, 4, network) == exactly(2 * (3 * 1e-4 + 3 * 1e-2) + 2 * MILLION / (0.92 * 1e8))


def test_the_quicker_of_the_two_is_taken():
    few_bytes, many_bytes = 8.0, 1e9
    assert all_reduce_s(few_bytes, 64, 1, TRUE_NETWORK) == tree_s(few_bytes, 64, 1, TRUE_NETWORK)
    assert all_reduce_s(many_bytes, 64, 1, TRUE_NETWORK) == ring_s(many_bytes, 64, 1, TRUE_NETWORK)


def test_a_device_alone_exchanges_nothing():
    assert all_reduce_s(MILLION, 1, 1, TRUE_NETWORK) == 0


def test_efficiency_is_a_share_of_the_bandwidth():
    half, whole = a_network(efficiency=0.5), a_network(inter_bandwidth_B_per_s=TRUE_NETWORK.inter_bandwidth_B_per_s / 2)
    assert all_reduce_s(MILLION, 4, 1, half) == exactly(float(all_reduce_s(MILLION, 4, 1, whole)))


def test_arrays_give_what_single_numbers_do():
    nodes, each = np.array([1, 2, 4]), np.array([4, 4, 1])
    together = all_reduce_s(MILLION, nodes, each, TRUE_NETWORK)
    alone = [float(all_reduce_s(MILLION, n, g, TRUE_NETWORK)) for n, g in zip(nodes, each, strict=True)]
    assert together.tolist() == alone


positive = st.floats(1e-7, 1e-1)
bandwidths = st.floats(1e6, 1e12)
sizes = st.floats(1, 1e10)
counts = st.integers(1, 512)


@given(sizes, counts, st.integers(1, 16), positive, positive, bandwidths, bandwidths, st.floats(1, 100))
def test_more_bandwidth_never_takes_longer_and_more_latency_never_less(m, n, g, intra_s, inter_s, intra, inter, factor):
    network = Network(
        launch_s=1e-5,
        intra_latency_s=intra_s,
        inter_latency_s=inter_s,
        intra_bandwidth_B_per_s=intra,
        inter_bandwidth_B_per_s=inter,
    )
    before = all_reduce_s(m, n, g, network)
    for field in fields(Network):
        changed = all_reduce_s(m, n, g, replace(network, **{field.name: getattr(network, field.name) * factor}))
        if field.name.endswith("_s") and "B_per_s" not in field.name:
            assert changed >= before * (1 - 1e-12)
        else:
            assert changed <= before * (1 + 1e-12)


@given(sizes, counts, st.integers(1, 16), st.floats(1.001, 1000))
def test_units_are_kept(nbytes, nodes, each, factor):
    """Time scales with the unit of time, and bytes with that of bytes: each in its own parameter only."""
    before = all_reduce_s(nbytes, nodes, each, TRUE_NETWORK)
    slower = replace(
        TRUE_NETWORK,
        **{name: getattr(TRUE_NETWORK, name) * factor for name in ("launch_s", "intra_latency_s", "inter_latency_s")},
        **{
            name: getattr(TRUE_NETWORK, name) / factor
            for name in ("intra_bandwidth_B_per_s", "inter_bandwidth_B_per_s")
        },
    )
    assert all_reduce_s(nbytes, nodes, each, slower) == pytest.approx(before * factor, rel=1e-9)
    other_bytes = replace(
        TRUE_NETWORK,
        **{
            name: getattr(TRUE_NETWORK, name) * factor
            for name in ("intra_bandwidth_B_per_s", "inter_bandwidth_B_per_s")
        },
    )
    assert all_reduce_s(nbytes * factor, nodes, each, other_bytes) == pytest.approx(before, rel=1e-9)


# Overlap


def test_one_bucket_that_is_ready_when_backward_ends_is_exposed_as_a_whole():
    assert exposed_s([np.array(0.3)], [np.array(0.05)], np.array(0.3)) == exactly(0.05)


def test_without_overlap_all_that_is_exchanged_shows():
    ready, lasts = [np.array(0.3)] * 4, [np.array(value) for value in (0.01, 0.02, 0.03, 0.04)]
    assert exposed_s(ready, lasts, np.array(0.3)) == exactly(0.1)


def test_with_full_overlap_the_last_bucket_shows():
    ready = [np.array(value) for value in (0.1, 0.2, 0.3)]
    assert exposed_s(ready, [np.array(0.02)] * 3, np.array(0.3)) == exactly(0.02)


def test_exchanges_that_end_before_backward_does_do_not_show():
    assert exposed_s([np.array(0.1)], [np.array(0.05)], np.array(0.3)) == 0


def test_many_tiny_buckets_come_near_what_a_fluid_would_do():
    """Gradients arrive evenly over B and take C in all: exposed is C / K when C <= B, and C - B (1 - 1 / K) beyond."""
    count, backward_s = 10_000, 0.4
    ready = [np.array(backward_s * (k + 1) / count) for k in range(count)]
    for whole_s in (0.1, 0.4, 1.0):
        exposed = exposed_s(ready, [np.array(whole_s / count)] * count, np.array(backward_s))
        closed = whole_s / count if whole_s <= backward_s else whole_s - backward_s * (1 - 1 / count)
        assert exposed == exactly(closed)


def test_an_exchange_waits_for_the_one_before():
    ready, lasts = [np.array(0.0), np.array(0.1)], [np.array(0.5), np.array(0.2)]
    assert finished_s(ready, lasts) == exactly(0.7)


times = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(times, st.lists(st.floats(0, 1), min_size=12, max_size=12), st.floats(1, 10))
def test_slower_exchanges_never_show_less(ready, lasts, factor):
    moments = [np.array(value) for value in sorted(ready)]
    each = [np.array(value) for value in lasts[: len(ready)]]
    slower = [value * factor for value in each]
    assert exposed_s(moments, slower, moments[-1]) >= exposed_s(moments, each, moments[-1]) - 1e-12


def test_buckets_of_another_size_hold_the_same_bytes_and_end_at_the_same_moment():
    ready, measured = np.array([0.4, 0.6, 0.8]), np.array([1.0, 4.0, 4.0])
    new_ready, new_bytes = in_other_buckets(ready, measured, cap_bytes=2.0, first_bytes=1.0)
    assert new_bytes.sum() == exactly(9.0)
    assert new_bytes.tolist() == [1.0, 2.0, 2.0, 2.0, 2.0]
    assert new_ready == exactly(np.array([0.4, 0.5, 0.6, 0.7, 0.8]))


def test_one_bucket_for_all_is_ready_at_the_end():
    new_ready, new_bytes = in_other_buckets(np.array([0.4, 0.8]), np.array([1.0, 4.0]), cap_bytes=100, first_bytes=100)
    assert (new_ready.tolist(), new_bytes.tolist()) == ([0.8], [5.0])


# One device, stragglers, contention


def test_a_step_is_a_fixed_cost_and_one_for_each_sample():
    batches = np.array([8.0, 16.0, 64.0])
    assert fitted_step(batches, 0.03 + 0.002 * batches) == exactly((0.03, 0.002))


def test_the_largest_of_one_is_the_mean_and_of_very_many_the_largest_seen():
    values = np.array([[1.0, 2.0, 3.0, 6.0]])
    assert expected_largest(values, np.array([1]))[0, 0] == exactly(3.0)
    assert expected_largest(values, np.array([10_000]))[0, 0] == exactly(6.0)


def test_the_largest_of_two_is_that_of_all_pairs():
    values = np.array([[1.0, 2.0, 4.0]])
    pairs = [max(a, b) for a in (1, 2, 4) for b in (1, 2, 4)]
    assert expected_largest(values, np.array([2]))[0, 0] == exactly(np.mean(pairs))


def test_contention_is_none_alone_and_runs_in_lines_through_what_was_measured_and_on():
    shares = contention_at(np.array([1, 2, 3, 4, 8]), np.array([2.0, 4.0]), np.array([[0.1, 0.4]]))
    assert shares[0] == exactly(np.array([0.0, 0.1, 0.25, 0.4, 1.0]))


def test_beyond_what_was_measured_contention_takes_a_bend_for_one_only_if_it_is_more_than_chance():
    """Without contention, noise at 2 and 4 ranks made a line that rose steeply to 16."""
    places, ranks = np.array([2.0, 4.0]), np.array([16])
    rng = np.random.default_rng(0)
    noise = np.vstack([np.zeros(2), 0.01 * rng.standard_normal((400, 2))])
    by_chance = contention_at(ranks, places, np.array([-0.01, 0.005]) + noise)
    assert by_chance[0, 0] == pytest.approx(0.005 / 3 * 15)
    cores_run_out = contention_at(ranks, places, np.array([0.0, 1.0]) + noise)
    assert cores_run_out[0, 0] == pytest.approx(1.0 + 12 * 0.5)


def test_contention_does_not_fall_beyond_what_was_measured():
    shares = contention_at(np.array([8]), np.array([2.0, 4.0]), np.array([[0.4, 0.2]]))
    assert shares[0] == exactly(np.array([0.2]))


# All together

WEAK = Setting(samples=1000, batch=10, scaling="weak")
ONE, FOUR = np.array([1]), np.array([4])


def test_the_epoch_is_the_sum_of_its_parts():
    found = predict(a_profile(), TRUE_NETWORK, WEAK, ONE, FOUR)
    parts_s = sum(getattr(found, part)[0, 0] for part in PARTS)
    assert found.steps[0] == 25
    assert found.epoch_time_s[0, 0] == exactly(25 * parts_s + found.epoch_fixed_s[0, 0])


def test_one_device_takes_what_was_measured_there():
    profile = a_profile()
    found = predict(profile, TRUE_NETWORK, WEAK, ONE, ONE)
    step_s = profile.fixed_s[0] + 10 * profile.per_sample_s[0]
    assert found.epoch_time_s[0, 0] == exactly(100 * step_s + profile.epoch_fixed_s[0])


def test_what_a_bucket_costs_at_its_start_hides_behind_those_before():
    """20 ms for each of three buckets, some 10 ms apart: they queue, and only the first begins 3 ms late."""
    setting = Setting(samples=25_600, batch=16, scaling="weak")
    slow = a_network(launch_s=0.02, intra_latency_s=0.0, intra_bandwidth_B_per_s=1e15)
    pair = (np.array([1]), np.array([2]))
    step_s = [
        predict(a_profile(), replace(slow, start_s=start_s), setting, *pair).step_time_s[0, 0]
        for start_s in (0.0, 3e-3)
    ]
    assert step_s[1] - step_s[0] == pytest.approx(3e-3)


def test_a_remainder_of_the_samples_is_a_step_unless_it_is_dropped():
    odd = replace(WEAK, samples=1001)
    assert predict(a_profile(), TRUE_NETWORK, odd, ONE, FOUR).steps[0] == 26
    assert predict(a_profile(), TRUE_NETWORK, replace(odd, drop_last=True), ONE, FOUR).steps[0] == 25


def test_a_strong_batch_is_shared_by_all_devices():
    strong = Setting(samples=1000, batch=40, scaling="strong")
    same = predict(a_profile(), TRUE_NETWORK, strong, ONE, FOUR)
    assert same.step_time_s == exactly(predict(a_profile(), TRUE_NETWORK, WEAK, ONE, FOUR).step_time_s)


def test_half_the_bytes_are_exchanged_as_over_twice_the_bandwidth():
    halved = predict(a_profile(), TRUE_NETWORK, replace(WEAK, bytes_factor=0.5), FOUR, ONE)
    doubled = replace(TRUE_NETWORK, inter_bandwidth_B_per_s=2 * TRUE_NETWORK.inter_bandwidth_B_per_s)
    assert halved.epoch_time_s == exactly(predict(a_profile(), doubled, WEAK, FOUR, ONE).epoch_time_s)


def test_compressing_costs_what_was_measured():
    free, costly = replace(WEAK, bytes_factor=0.5), replace(WEAK, bytes_factor=0.5, compression_s_per_byte=1e-9)
    bytes_exchanged = a_profile().bucket_bytes.sum()
    more_s = (
        predict(a_profile(), TRUE_NETWORK, costly, FOUR, ONE).step_time_s
        - predict(a_profile(), TRUE_NETWORK, free, FOUR, ONE).step_time_s
    )
    assert more_s[0, 0] == exactly(1e-9 * bytes_exchanged)


def test_four_passes_compute_four_times_and_exchange_once():
    profile, four = a_profile(), replace(WEAK, batch=40, accumulation_steps=4)
    found, once = predict(profile, TRUE_NETWORK, four, FOUR, ONE), predict(profile, TRUE_NETWORK, WEAK, FOUR, ONE)
    assert found.compute_s == exactly(4 * once.compute_s)
    assert found.exposed_communication_s == exactly(once.exposed_communication_s)


def test_local_sgd_exchanges_all_weights_every_so_many_steps():
    profile = a_profile()
    found = predict(profile, TRUE_NETWORK, replace(WEAK, local_sgd_period=8), FOUR, ONE)
    whole_s = all_reduce_s(profile.bucket_bytes.sum(), 4, 1, TRUE_NETWORK)
    assert found.exposed_communication_s[0, 0] == exactly(whole_s / 8)


def test_the_knee_is_where_half_of_all_is_lost_and_the_fastest_may_lie_elsewhere():
    strong = Setting(samples=4096, batch=4096, scaling="strong")

    slow = a_network(inter_latency_s=1e-2, launch_s=1e-3)
    found = answers(calibrate(fabricated(noise=0.0)), slow, strong, placements(4096, 1))
    best = knee(found)
    assert best is not None
    assert best.scaling_efficiency >= 0.5
    after = [one for one in found if one.devices > best.devices]
    assert after[0].scaling_efficiency < 0.5
    assert fastest(found).epoch_time_s == min(one.epoch_time_s for one in found)


def test_a_sweep_has_every_power_of_two_and_some_between_and_fills_whole_nodes():
    assert placements(64, 8) == [(1, 1), (1, 2), (1, 3), (1, 4), (1, 6), (1, 8), (2, 8), (3, 8), (4, 8), (6, 8), (8, 8)]
    assert placements(16_384, 8)[-1] == (2048, 8)


@pytest.mark.parametrize("devices_per_node", [1, 3, 5, 10, 12, 40, 72])
def test_a_sweep_has_a_full_node_and_two_and_all_nodes_whatever_a_node_holds(devices_per_node):
    found = placements(100 * devices_per_node, devices_per_node)
    assert {(1, devices_per_node), (2, devices_per_node), (3, devices_per_node), (100, devices_per_node)} <= set(found)
    devices = [nodes * each for nodes, each in found]
    assert devices == sorted(set(devices))
    assert max(after / before for before, after in pairwise(devices)) <= 2


def test_a_sweep_ends_at_the_whole_nodes_that_so_many_devices_fill():
    assert placements(16_384, 10)[-1] == (1638, 10)
    assert placements(5, 8)[-1] == (1, 5)


# Simpler laws beside it

LAWS = {
    "ideal": lambda devices, times: lambda more: np.full(np.shape(more), times[np.argmin(devices)]),
    "wants more": lambda devices, times: refuse(),
}


def refuse():
    raise UserError("measure more")


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_a_law_is_given_times_that_are_constant_on_a_perfect_machine(scaling):
    batch = 16 if scaling == "weak" else 64
    setting = Setting(samples=6400, batch=batch, scaling=scaling)
    each = 16 if scaling == "weak" else 64
    one = Launch(nodes=1, devices_per_node=1, batch_size_per_device=each, steps=6400 / each, epoch_time_s=100.0)
    found = baseline_epoch_times_s(LAWS, [one], setting, np.array([1, 2, 4]))
    assert found["ideal"] == exactly(np.array([100.0, 50.0, 25.0]))


def test_a_law_that_wants_more_numbers_of_devices_is_absent():
    one = Launch(nodes=1, devices_per_node=1, batch_size_per_device=10, steps=100, epoch_time_s=100.0)
    assert baseline_epoch_times_s(LAWS, [one], WEAK, ONE).keys() == {"ideal"}
