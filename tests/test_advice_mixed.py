"""Advice on tables that mix what can't be compared: strategies, precisions, launchers, cells that were planned and not measured."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd
import pytest
from advising import NOT_TOLD, advice, cell, monitor, one, predicted, said, tables_of
from factories import a_trial, an_unavailable_record

from dpscale.advice.least import MAKE_MORE, NARROWER
from dpscale.advice.peak import Flops
from dpscale.advice.peaks import peak_of
from dpscale.advice.sentences import PARTLY, WITHHELD
from dpscale.tables.schema import Measured

SINGLE, DDP = cell("single", 1, 4.0), cell("ddp", 2, 2.2)


# Numbers of devices are compared of one way to train


def test_devices_that_helped_one_strategy_are_not_told_to_help_none() -> None:
    """bf16 on 2 is fastest, and fp32 on 4 is faster than fp32 on 2: more devices were not tried in bf16."""
    half = cell("half", 2, 1.2, base="ddp", precision="bf16")
    sentence = said("fastest", SINGLE, DDP, half, cell("ddp", 4, 1.3))
    assert sentence.verdict.startswith("half/spawn/1x2 trains fastest")
    assert sentence.next_steps == (
        "half/spawn in bf16 was not measured on more than 2 devices: add larger topologies, or have them predicted.",
    )


def test_one_device_without_a_strategy_for_more_is_not_told_that_more_did_not_help() -> None:
    sentence = said("fastest", cell("single", 1, 1.0), cell("ddp", 1, 3.0), cell("ddp", 2, 2.0))
    assert sentence.verdict.startswith("single/spawn/1x1 trains fastest")
    assert "did not help" not in sentence.next_steps[0]


def test_fewer_devices_than_the_fastest_measured_are_not_more_of_them() -> None:
    cells = cell("single", 1, 6.0), cell("ddp", 2, 3.2), cell("ddp", 4, 1.0)
    sentence = one("prediction", tables_of(*cells, ledger=[predicted(3, 2.2)]))
    assert sentence.support == WITHHELD
    assert "nothing is predicted on more devices than ddp/spawn/1x4 used" in sentence.verdict


def test_a_prediction_is_compared_with_its_own_strategy() -> None:
    """Whatever is in bf16, more devices bring fp32 something."""
    half = cell("half", 2, 1.0, base="ddp", precision="bf16")
    sentence = one(
        "prediction", tables_of(cell("single", 1, 6.0), cell("ddp", 2, 3.2), half, ledger=[predicted(8, 1.2)])
    )
    assert (
        "2.67 times (both intervals at their ends: 2.49 to 2.86) as fast as ddp/spawn/1x2, which took the least of what was measured of ddp/spawn"
        in sentence.verdict
    )
    assert sentence.why.startswith("Predicted efficiency 80 %")
    assert "Of all that was measured half/spawn/1x2 took the least." in sentence.why


# Efficiency


def test_a_row_without_efficiency_is_not_said_to_have_no_base() -> None:
    made = tables_of(SINGLE, DDP, cell("ddp", 4, 1.2))
    again = {
        (4,): "Measure it again: move trials/ddp/spawn/1x4, beside tables/, away, then `make run`.",
        (
            2,
            4,
        ): "Measure them again: move trials/ddp/spawn/1x2 and trials/ddp/spawn/1x4, beside tables/, away, then `make run`.",
    }
    for on, step in again.items():
        emptied = made["summary"].devices.isin(on)
        summary = made["summary"].assign(scaling_efficiency=made["summary"].scaling_efficiency.mask(emptied))
        sentence = one("efficiency", {**made, "summary": summary})
        assert "a base and no scaling efficiency" in f"{sentence.verdict} {sentence.why}"
        assert sentence.next_steps[-1] == step


def test_few_launches_on_fewer_devices_are_to_become_more() -> None:
    gap = cell("ddp", 2, [3.3, 3.4]), cell("ddp", 4, 4 / (4 * 0.85))
    sentence = said("efficiency", SINGLE, *gap)
    assert sentence.missing == "launches: 6 of ddp/spawn/1x2 and of the base"
    assert sentence.next_steps == ("Run `make more`, which repeats the cells that need it.",)


def test_what_is_kept_on_more_devices_only_is_not_kept_up_to_them() -> None:
    sentence = said("efficiency", SINGLE, cell("ddp", 2, 4 / (2 * 0.6)), cell("ddp", 4, 4 / (4 * 0.85)))
    assert sentence.support == PARTLY
    assert sentence.verdict.startswith("On 4 devices scaling efficiency is 80 % or more: ddp/spawn/1x4 has 85.0 %")
    assert "on 2 that is not shown: ddp/spawn/1x2 has 60.0 %" in sentence.verdict
    assert sentence.missing


@pytest.mark.parametrize(("share", "text"), [(0.825, "82.5 %"), (0.999, "99.9 %"), (0.8, "80 %")])
def test_the_efficiency_that_is_asked_for_is_not_rounded(share: float, text: str) -> None:
    assert (
        f" of {text} or more: at most"
        in said("efficiency", SINGLE, cell("ddp", 2, 3.0), least_efficiency=share).verdict
    )


def test_an_interval_that_holds_what_is_asked_for_is_to_become_narrower() -> None:
    """`make more` without MORE repeats cells whose interval is wider than 5 %, which these are not."""
    sentence = said("efficiency", SINGLE, cell("ddp", 2, 2.5))
    assert "MORE=1" in " ".join(sentence.next_steps)


def test_efficiency_names_the_row_of_its_base() -> None:
    assert said("efficiency", SINGLE, DDP).follows_from[0].rows == ("ddp/spawn/1x2", "single/spawn/1x1")


# Cells that are planned and have nothing measured


def not_measured(*, planned: bool) -> list[Measured]:
    trial = a_trial(scaling="strong", batch_size_per_device=16)
    return [(trial, None if planned else an_unavailable_record(trial), None)]


@pytest.mark.parametrize(("planned", "reason"), [(True, "not measured yet"), (False, "needs CUDA devices")])
def test_what_is_planned_is_named_with_its_reason_and_not_to_be_added(planned: bool, reason: str) -> None:
    tables = tables_of(SINGLE, not_measured(planned=planned))
    speed, devices = one("fastest", tables), one("efficiency", tables)
    assert f"ddp/spawn/1x2: {reason}" in speed.why
    assert devices.verdict.endswith("nothing on several devices was measured.")
    assert devices.why == f"Planned, but without any time of an epoch: ddp/spawn/1x2: {reason}."
    assert devices.next_steps == speed.next_steps
    assert ("make run" if planned else "make reprobe") in devices.next_steps[0]
    assert "Add" not in " ".join([*speed.next_steps, *devices.next_steps])


def test_where_only_controls_were_measured_that_is_said() -> None:
    sentence = said("efficiency", cell("independent", 1, 4.0), cell("independent", 2, 2.0))
    assert "nothing that trains a model was measured" in sentence.verdict
    assert "only one device" not in sentence.verdict
    assert sentence.next_steps == ("Add a strategy that trains a model.",)


def test_launches_without_times_are_named_as_the_reason() -> None:
    made = tables_of(SINGLE, DDP)
    sentence = one("fastest", {**made, "timings": made["timings"].assign(epoch_time_s=float("nan"))})
    assert sentence.verdict.endswith("no cell that trains a model was measured.")
    assert "single/spawn/1x1 and ddp/spawn/1x2: launches have no time" in sentence.why


def test_without_a_monitor_one_is_asked_for_and_with_one_counters_are() -> None:
    nothing = monitor(single={}, ddp={})
    assert "Set monitor_interval_s" in one("energy", tables_of(SINGLE, DDP, monitor=nothing)).next_steps[0]
    processes = monitor(single={"process": NOT_TOLD}, ddp={"process": NOT_TOLD})
    step = one("energy", tables_of(SINGLE, DDP, monitor=processes)).next_steps[0]
    assert step == "Measure on a machine whose energy counters you may read."


def test_energy_that_was_never_counted_is_none() -> None:
    sentence = one("energy", tables_of(SINGLE, DDP, monitor=no_energy()))
    assert sentence.support == WITHHELD
    assert "counters told no energy at all" in sentence.verdict


def no_energy() -> pd.DataFrame:
    table = monitor(single={"gpu": 500.0}, ddp={"gpu": 500.0})
    return table.assign(energy_per_epoch_J=0.0)


# Ties


def test_of_as_many_devices_the_one_with_the_best_median_is_taken_for_that() -> None:
    step = said("fastest", SINGLE, DDP, cell("fsdp", 2, 2.201)).next_steps[0]
    assert step.startswith("Take ddp/spawn/1x2, with the best median of those on the fewest devices")


def test_fewer_devices_are_advised_with_what_their_median_is() -> None:
    near = [2.05, 2.06, 2.07, 2.0, 2.04, 2.1]
    step = said("fastest", cell("single", 1, near), cell("ddp", 2, [2.0, 2.02, 2.03, 2.01, 2.06, 2.08])).next_steps[0]
    assert step.startswith("Take single/spawn/1x1, of these the one with the fewest devices: its median is 1.01 times")


def test_twice_the_time_is_not_advised_for_one_outlier() -> None:
    """It keeps ddp from being shown to be faster, though its median is half as long."""
    slow, faster = [4, 4.1, 4.2, 4.05, 4.15, 4.12, 4.11], [2, 2.1, 2.2, 2.05, 2.15, 40.0]
    step = said("fastest", cell("single", 1, slow), cell("ddp", 2, faster)).next_steps[0]
    assert step.startswith("Take ddp/spawn/1x2, which has the best median by far")


def test_less_than_a_percent_is_not_told_as_none() -> None:
    ddp = [2.0, 2.0004, 2.0008, 2.0003, 2.0006, 2.0005]
    open_to_both = said("fastest", cell("single", 1, [time + 0.0001 for time in ddp]), cell("ddp", 2, ddp)).why
    assert re.search(r"may take from 0\.0\d+ % less to 0\.0\d+ % more time", open_to_both), open_to_both
    shown = said("fastest", cell("single", 1, [time + 0.002 for time in ddp]), cell("ddp", 2, ddp)).why
    assert re.match(r"single/spawn/1x1 takes 0\.1\d+ % more \(95 % interval: 0\.0\d+ to 0\.1\d+\) time, ", shown), shown


def test_launches_that_are_equal_are_not_to_be_repeated() -> None:
    sentence = said("fastest", cell("single", 1, [2.0] * 6), cell("ddp", 2, [2.0] * 6))
    assert sentence.next_steps == (
        "Take single/spawn/1x1, of these the one with the fewest devices: all launches are equal.",
    )


@pytest.mark.parametrize(
    "name", ["NVIDIA H200 NVL", "NVIDIA H100 NVL", "GRID A100-40C", "NVIDIA A100-40C", "NVIDIA A40-48Q", "Tesla T4-16C"]
)
def test_cards_of_less_power_and_virtual_ones_have_no_peak_of_the_whole(name: str) -> None:
    assert peak_of(name) is None


def test_what_a_cell_has_is_not_to_be_tried() -> None:
    has = {"compile": True, "channels_last": True, "precision": "bf16"}
    cells = cell("single", 1, 2.0, **has), cell("ddp", 2, 1.25, **has)
    bf16 = [
        [
            (trial, record and replace(record, effective_precision={"compute": "bfloat16"}), steps)
            for trial, record, steps in one
        ]
        for one in cells
    ]
    step = next(
        sentence.next_steps[0]
        for sentence in advice(tables_of(*bf16), Flops(1e12, ""), peak_TFLOP_per_s={"bf16": 200.0})
        if sentence.about == "peak"
    )
    assert step == "More is lost on each device than by their number: try larger batches."


def test_cells_without_times_are_not_spoken_of() -> None:
    made = tables_of(SINGLE, DDP, cell("ddp", 4, 1.2))
    timings = made["timings"].assign(epoch_time_s=made["timings"].epoch_time_s.where(made["timings"].devices != 4))
    sentence = one("fastest", {**made, "timings": timings})
    assert sentence.verdict.startswith("ddp/spawn/1x2 trains fastest")


def test_in_short_asks_for_one_command() -> None:
    """Two launches of ddp on one device are to become more, and the interval of its efficiency on two narrower."""
    cells = cell("single", 1, 4.0), cell("ddp", 1, [2.4, 2.6]), cell("ddp", 2, 2.5)
    steps = {about: said(about, *cells).next_steps for about in ("fastest", "efficiency", "in_short")}
    assert (steps["fastest"], steps["efficiency"]) == ((MAKE_MORE,), (NARROWER,))
    assert [step for step in steps["in_short"] if "make" in step] == [NARROWER]


def test_device_time_and_money_tell_another_precision_too() -> None:
    half = cell("half", 1, 2.0, base="ddp", precision="bf16")
    for about in ("device_hours", "money"):
        sentence = said(about, SINGLE, half, price_per_device_hour=1)
        assert "half/spawn/1x1 is in bf16, others are in fp32" in sentence.warnings


def test_where_the_rank_test_leaves_it_open_that_is_said() -> None:
    """The interval lies above 1; of four others the rank test's p-value of 0.015 makes 0.06."""
    best, near = cell("single", 1, [1.0, 1.1, 1.2, 1.3, 1.4, 1.75]), cell("ddp", 2, [1.5, 1.6, 1.7, 1.8, 1.9, 2.0])
    far = [cell("ddp", devices, 9.0) for devices in (4, 8, 16)]
    assert "but the rank test does not show it" in said("fastest", best, near, *far).why
