"""The model of published tables: what it makes of points and of other systems, and that no input leads it to nonsense."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpscale.errors import UserError
from dpscale.scaling_model.observed import Family, Layout, Point, calibration
from dpscale.scaling_model.reduced import SPREADS, Form, Prior, fit_prior, predict

FORM = Form()
PRIOR = Prior(per_overhead=0.4, node_factor=1.75, low=-0.6, high=1.7, systems=("A", "B"))


def family(points, system="new", **facts):
    """Of (nodes, devices, time per step)."""
    names = dict.fromkeys(("batch_per_gpu", "gpu", "interconnect", "software"), "")
    names |= {"source": "s", "model": "m", "precision": "p", "strategy": "d"}
    return Family(
        **names | facts, system=system, metric="step_time", unit="s", points=tuple(Point(*at) for at in points)
    )


COSTS = st.floats(0, 0.3)


def made(
    onset=0.02, doubling=0.03, second_node=0.05, layouts=((1, 1), (1, 2), (1, 4), (1, 8), (2, 16), (4, 32)), scale=1.0
):
    """Points as the model has them."""
    return [
        Point(
            nodes,
            devices,
            scale
            * (
                1
                + (devices > 1) * onset
                + doubling * math.log2(devices / nodes)
                + second_node * SPREADS["halved"](nodes)
            ),
        )
        for nodes, devices in layouts
    ]


def expected(points, target, prior=PRIOR):
    return predict(calibration(points, 8), target, prior, FORM)


def test_of_a_family_that_scales_ideally_nearly_the_same_time_is_expected_on_more_nodes():
    points = made(onset=0, doubling=0, second_node=0)
    assert expected(points, Layout(4, 32)).step_time == pytest.approx(1, abs=0.01)


def test_a_second_node_costs_what_others_have_shown_where_only_one_was_measured():
    prediction = expected(made(), Layout(2, 16))
    assert prediction.step_time == pytest.approx(1 + 0.02 + 3 * 0.03 + PRIOR.node_factor * 0.03, abs=0.01)


def test_a_second_node_costs_what_it_was_measured_to():
    points = made(second_node=0.4, layouts=((1, 1), (1, 2), (1, 4), (2, 8)))
    prediction = expected(points, Layout(4, 16))
    assert prediction.step_time == pytest.approx(points[-1].step_time + 0.4 * 0.5, rel=0.05)


def test_one_device_a_node_shows_the_cost_of_nodes_directly():
    points = made(second_node=0.2, layouts=((1, 1), (2, 2), (4, 4), (8, 8)))
    prediction = expected(points, Layout(16, 16))
    assert prediction.step_time == pytest.approx(points[-1].step_time + 0.1, rel=0.02)


def test_without_a_time_on_one_device_the_costs_are_those_that_were_measured():
    points = made(second_node=0.4, layouts=((1, 2), (1, 4), (2, 8)))
    prediction = expected(points, Layout(4, 16))
    assert prediction.step_time == pytest.approx(points[-1].step_time + 0.4 * 0.5, rel=0.05)


def test_more_devices_in_the_same_node_cost_doublings_alone():
    prediction = expected(made(), Layout(1, 16))
    assert prediction.step_time == pytest.approx(1 + 0.02 + 4 * 0.03, abs=0.01)


def test_a_very_large_overhead_is_not_taken_for_communication():
    slow_input = expected(made(onset=1.3, layouts=((1, 1), (1, 8))), Layout(2, 16))
    assert slow_input.step_time / made(onset=1.3)[3].step_time < 1.15


@settings(max_examples=50)
@given(COSTS, COSTS, COSTS, st.floats(1e-6, 1e6))
def test_the_unit_of_time_plays_no_part(onset, doubling, second_node, scale):
    one = expected(made(onset, doubling, second_node), Layout(4, 32))
    other = expected(made(onset, doubling, second_node, scale=scale), Layout(4, 32))
    assert other.step_time == pytest.approx(one.step_time * scale)
    assert other.low == pytest.approx(one.low * scale)
    assert other.high == pytest.approx(one.high * scale)


@settings(max_examples=50)
@given(COSTS, COSTS, COSTS)
def test_intervals_widen_with_the_distance_and_stay_positive(onset, doubling, second_node):
    points = made(onset, doubling, second_node)
    widths = []
    for nodes in (2, 4, 16, 512, 8192):
        prediction = expected(points, Layout(nodes, 8 * nodes))
        assert 0 < prediction.low <= prediction.step_time <= prediction.high
        widths.append((prediction.high - prediction.low) / prediction.step_time)
    assert widths == sorted(widths)
    assert widths[0] > 0


@settings(max_examples=50)
@given(st.lists(st.floats(0.2, 5), min_size=4, max_size=4))
def test_any_times_give_a_positive_prediction_that_no_more_nodes_shorten(times):
    points = [Point(1, devices, time) for devices, time in zip((1, 2, 4, 8), times, strict=True)]
    found = [expected(points, Layout(nodes, 8 * nodes)).step_time for nodes in (2, 4, 64)]
    assert found == sorted(found)
    assert found[0] >= times[-1] * (1 - 1e-9)


LAYOUTS = st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 2, 3, 4, 8])).map(
    lambda at: (at[0], at[0] * at[1])
)


@settings(max_examples=100)
@given(st.dictionaries(LAYOUTS, st.floats(1e-3, 1e3), min_size=2), LAYOUTS)
def test_no_layouts_and_times_lead_to_nonsense(times, target):
    points = [Point(nodes, devices, time) for (nodes, devices), time in times.items()]
    if len({point.devices for point in points}) > 1:
        prediction = predict(calibration(points, 64), Layout(*target), PRIOR, FORM)
        assert 0 < prediction.low <= prediction.step_time <= prediction.high < math.inf


def test_super_linear_points_are_not_carried_on():
    points = [Point(1, devices, time) for devices, time in ((1, 1.0), (2, 0.97), (4, 0.94), (8, 0.91))]
    assert expected(points, Layout(4, 32)).step_time == pytest.approx(0.91, abs=0.02)


@pytest.mark.parametrize(("target", "anchor"), [(Layout(4, 32), Layout(1, 8)), (Layout(4, 16), Layout(2, 8))])
def test_of_two_layouts_of_as_many_devices_the_one_with_nodes_like_the_targets_is_gone_on_from(target, anchor):
    points = [Point(1, 1, 1.0), Point(1, 8, 1.2), Point(2, 8, 1.3)]
    none = replace(PRIOR, per_overhead=1e-9)
    start = next(point for point in points if (point.nodes, point.devices) == (anchor.nodes, anchor.devices))
    other = ({1.2, 1.3} - {start.step_time}).pop()
    found = expected(points, target, none).step_time
    assert abs(found - start.step_time) < abs(found - other)


def test_two_layouts_of_one_number_of_devices_are_too_few():
    with pytest.raises(UserError, match="only N = 8 on up to 8 devices; measure at two numbers"):
        calibration([Point(1, 8, 1.0), Point(2, 8, 1.1), Point(4, 32, 1.2)], 8)


def test_without_a_point_on_few_devices_nothing_is_predicted():
    with pytest.raises(UserError, match="no point on up to 8 devices"):
        calibration([Point(2, 16, 1.0)], 8)


# --- the prior --------------------------------------------------------------------------------------------------------


def test_the_prior_of_made_up_systems_is_what_they_were_made_of():
    known = [
        family([(p.nodes, p.devices, p.step_time) for p in made(onset, doubling, 1.5 * doubling)], system=system)
        for system, onset, doubling in (("A", 0.0, 0.02), ("B", 0.03, 0.04), ("C", 0.01, 0.03), ("C", 0.01, 0.05))
    ]
    prior = fit_prior(known, FORM)
    assert prior.node_factor == pytest.approx(1.5)
    assert prior.systems == ("A", "B", "C")


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ([], "found: none"),
        ([family([(1, 1, 1.0), (1, 8, 1.1), (2, 16, 1.2)], system="A")], "found: A"),
        (
            [family([(1, 1, 1.0), (1, 8, 1.1), (2, 16, 1.2)], system=name) for name in "AB"],
            "from two devices of a node",
        ),
        (
            [
                family([(1, 1, 1.0), (1, 2, 1.05), (1, 8, 1.1), (2, 16, 1.2)], system="A"),
                family([(1, 1, 1.0), (1, 8, 1.1), (2, 16, 1.2)], system="B"),
            ],
            None,
        ),
    ],
)
def test_a_prior_from_too_little_is_refused_with_what_is_missing(known, missing):
    if missing is None:
        assert fit_prior(known, FORM).systems == ("A", "B")
    else:
        with pytest.raises(UserError, match=missing):
            fit_prior(known, FORM)
