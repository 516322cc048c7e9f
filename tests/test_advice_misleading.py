"""Advice on tables that could mislead: numbers that contradict each other, what is lost or left out, a trade-off that is not shown."""

from __future__ import annotations

import pandas as pd
import pytest
from advising import CONTENDED, advice, cell, explained, monitor, one, predicted, said, tables_of
from factories import a_trial, an_unavailable_record

from dpscale.advice.least import NARROWER
from dpscale.advice.peak import Flops
from dpscale.advice.sentences import SHOWN, WITHHELD, Sentence

SINGLE, DDP = cell("single", 1, 4.0), cell("ddp", 2, 2.2)


def test_the_placebo_is_neither_held_against_a_control_nor_explained() -> None:
    """It is compared with its twin only."""
    cells = SINGLE, cell("ddp", 2, 3.0), cell("placebo", 2, 3.3, base="ddp"), cell("independent", 2, 2.1)
    assert [one.cell for one in advice(tables_of(*cells)) if one.about == "cause"] == ["ddp/spawn/1x2"]
    made = tables_of(explained(**CONTENDED))
    placebo = made["causes"].assign(strategy="placebo")
    both = pd.concat([made["causes"], placebo], ignore_index=True)
    assert [one.cell for one in advice({**made, "causes": both}) if one.about == "cause"] == ["ddp/spawn/1x2"]


def test_where_one_device_is_fastest_others_are_not_asked_for() -> None:
    step = said("fastest", cell("single", 1, 1.0), cell("ddp", 2, 1.5), cell("ddp", 4, 1.2)).next_steps
    assert step == ("Train on one device: all that was measured on more took longer.",)


def test_speed_that_is_not_shown_has_no_price() -> None:
    near = cell("single", 1, [2.0, 2.02, 2.04, 2.06, 2.08, 2.1]), cell("ddp", 2, [2.0, 2.01, 2.03, 2.05, 2.07, 2.08])
    assert said("fastest", *near).support == WITHHELD
    sentence = said("device_hours", *near)
    assert sentence.verdict.startswith("single/spawn/1x1 takes the least device time")
    assert "The speed of" not in sentence.why
    assert sentence.next_steps == ()


def test_what_is_planned_is_named_beside_what_is_shown() -> None:
    trial = a_trial(scaling="strong", batch_size_per_device=4, devices_per_node=8)
    tables = tables_of(SINGLE, DDP, [(trial, an_unavailable_record(trial, "needs CUDA devices"), None)])
    for about in ("fastest", "efficiency", "in_short"):
        sentence = one(about, tables)
        assert "Planned, but without any time of an epoch: ddp/spawn/1x8: needs CUDA devices." in sentence.why
        assert "add larger topologies" not in " ".join(sentence.next_steps)


WIDE = {"data_wait_s": 0.006, "data_wait_s_low": -0.001, "data_wait_s_high": 0.007}
CONTENTION = ("contention_s", "contention_s_low", "contention_s_high")


def changed(*contention_s: float, **others: float) -> Sentence:
    made = tables_of(explained(**CONTENDED))
    values = dict(zip(CONTENTION, contention_s, strict=False)) | others
    return one("cause", {**made, "causes": made["causes"].assign(**values)})


def test_a_part_that_may_take_time_is_named() -> None:
    sentence = changed(0.008, 0.0075, 0.0085, **WIDE)
    assert "waiting for data 6.00 ms (95 % interval: -1.00 to 7.00)" in sentence.why
    assert sentence.support == SHOWN


def test_medians_of_parts_need_not_add_up_to_that_of_the_step() -> None:
    ends = {"step_s_low": 0.048, "step_s_high": 0.05, "compute_s_low": 0.0395, "compute_s_high": 0.0405}
    assert changed(0.0092, 0.0091, 0.0093, **ends).support == SHOWN


@pytest.mark.parametrize(
    ("contention_s", "others", "because"),
    [
        ((0.03, 0.03, 0.03), {}, "of which one rank alone takes 40.0 ms, which can't be"),
        ((0.0089, 0.0088, 0.055), {}, "of a step of 49.0 ms, which can't be"),
        ((0.008, 0.009, 0.007), {}, "the interval of contention does not hold its value"),
        ((0.008, 0.008, 0.008), {"compute_s": float("nan")}, "what one rank alone takes is not known"),
    ],
)
def test_numbers_that_contradict_each_other_name_no_cause(
    contention_s: tuple[float, ...], others: dict[str, float], because: str
) -> None:
    sentence = changed(*contention_s, **others)
    assert sentence.support == WITHHELD
    assert because in sentence.verdict


def test_a_base_above_the_peak_says_that_it_is_none() -> None:
    peaks = {"peak_TFLOP_per_s": {"fp32": 25.0}}
    cells = cell("single", 1, 2.0), cell("ddp", 2, 1.4)
    sentence = one("peak", tables_of(*cells), flops=Flops(1e12, ""), **peaks)
    assert "single/spawn/1x1 would reach 128 % of 25 TFLOP/s" in sentence.verdict


def test_an_interval_that_holds_what_is_asked_for_on_fewer_devices_is_to_become_narrower() -> None:
    sentence = said("efficiency", SINGLE, cell("ddp", 2, 2.515), cell("ddp", 4, 4 / (4 * 0.85)))
    assert sentence.next_steps == (NARROWER,)
    assert "part from what is asked for" in sentence.missing


def test_a_package_that_is_missing_in_one_launch_is_not_summed_over() -> None:
    energies = monitor(single={"package": 500.0}, ddp={"package": 300.0})
    second = energies.assign(name="package 1")
    lost = pd.concat([energies, second[second.repeat != 3]], ignore_index=True)
    assert one("energy", tables_of(SINGLE, DDP, monitor=lost)).support == WITHHELD
    negative = energies.assign(energy_per_epoch_J=energies.energy_per_epoch_J.where(energies.repeat != 3, -20.0))
    both = pd.concat([negative, second], ignore_index=True)
    assert "less than none" in one("energy", tables_of(SINGLE, DDP, monitor=both)).verdict


def test_predictions_of_one_topology_say_nothing_of_others_and_each_strategy_has_its_own_record() -> None:
    cells = cell("single", 1, 6.0), cell("ddp", 2, 3.2)
    sentence = one("prediction", tables_of(*cells, ledger=[predicted(16, 4.0)]))
    assert sentence.verdict.startswith("On 16 devices ddp/spawn would not be faster: ddp/spawn/1x16 would take 4.00 s")
    missed = one("prediction", tables_of(*cells, cell("ddp", 4, 5.0), ledger=[predicted(4, 1.9), predicted(8, 0.6)]))
    assert missed.support == WITHHELD
