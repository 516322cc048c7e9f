"""The baselines are what their authors say, fitted to few points, and refuse to guess a parameter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpscale.errors import UserError
from dpscale.scaling_model.laws import LAWS

DEVICES = [1, 2, 4, 8]
MORE = np.array([16.0, 32.0, 256.0])


def said(law, times, devices=DEVICES, more=MORE):
    return LAWS[law](devices, times)(more)


def test_ideal_keeps_the_time_on_the_fewest_devices():
    assert said("ideal", [1.5, 2.0], devices=[8, 2]).tolist() == [2.0] * 3


def test_frozen_efficiency_keeps_the_time_on_the_most_devices():
    assert said("frozen_efficiency", [1.5, 1.0], devices=[8, 1]).tolist() == [1.5] * 3


def test_amdahls_speed_up_ends_at_one_over_the_serial_share():
    serial = 0.05
    times = [n * (serial + (1 - serial) / n) for n in DEVICES]  # N / S, of S = 1 / (s + (1 - s) / N)
    assert said("amdahl", times) == pytest.approx(MORE * (serial + (1 - serial) / MORE))
    assert 1e9 / said("amdahl", times, more=np.array([1e9]))[0] == pytest.approx(1 / serial, rel=1e-6)


def test_gustafsons_scaled_speed_up_is_a_straight_line():
    serial = 0.2
    times = [3.0 * n / (n - serial * (n - 1)) for n in DEVICES]  # N / S, of S = N - s (N - 1)
    assert said("gustafson", times) == pytest.approx(3.0 * MORE / (MORE - serial * (MORE - 1)))


def test_the_universal_law_has_a_peak_where_gunther_puts_it():
    contention, coherency = 0.03, 0.001
    times = [1 + contention * (n - 1) + coherency * n * (n - 1) for n in DEVICES]
    many = np.arange(1.0, 200.0)
    speedup = many / said("universal_scalability", times, more=many)
    assert many[speedup.argmax()] == round(np.sqrt((1 - contention) / coherency))


def test_the_logarithm_costs_the_same_for_each_doubling():
    assert said("logarithm", [1.0, 1.1, 1.2, 1.3]) == pytest.approx([1.4, 1.5, 1.8])


@pytest.mark.parametrize("law", ["amdahl", "gustafson", "universal_scalability"])
def test_super_linear_points_give_no_negative_parameter(law):
    times = said(law, [1.0, 0.98, 0.97, 0.96])
    assert (np.diff(times) >= -1e-12).all()
    assert (times > 0).all()


@pytest.mark.parametrize(
    ("law", "devices", "missing"),
    [
        ("amdahl", [8], "measure 1 more"),
        ("logarithm", [8, 8], "measured: 8; measure 1 more"),
        ("gustafson", [], "measured: none; measure 2 more"),
        ("universal_scalability", [1, 8, 8], "measured: 1, 8; measure 1 more"),
    ],
)
def test_too_few_numbers_of_devices_are_refused_with_how_many_are_missing(law, devices, missing):
    with pytest.raises(UserError, match=missing):
        LAWS[law](devices, [1.0] * len(devices))


@settings(max_examples=30)
@given(st.lists(st.floats(0.5, 5), min_size=4, max_size=4), st.floats(1e-6, 1e6), st.permutations(range(4)))
def test_neither_the_unit_of_time_nor_the_order_of_points_plays_a_part(times, unit, order):
    for law in LAWS:
        as_given = said(law, times)
        other = said(law, [times[i] * unit for i in order], devices=[DEVICES[i] for i in order])
        assert other == pytest.approx(as_given * unit, rel=1e-6, abs=1e-9 * unit)
