"""Advice of each kind on made-up tables: costs, energy, share of the peak, causes, prediction; and its page."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from advising import NOT_TOLD, advice, cell, monitor, one, said, tables_of
from factories import MACHINE, an_entry

from dpscale.advice.page import page
from dpscale.advice.peak import Flops
from dpscale.advice.peaks import PEAKS, peak_of
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD
from dpscale.advice.words import amount, number
from dpscale.forecasting.ledger import Interval
from dpscale.statistics import Estimate
from dpscale.tables.schema import Measured
from dpscale.words import listed

SINGLE, DDP = cell("single", 1, 3600.0), cell("ddp", 2, 2000.0)  # an hour, and 1.11 device-hours


# Device time and money


def test_the_least_device_time_is_told_with_what_the_speed_of_the_fastest_costs() -> None:
    sentence = said("device_hours", SINGLE, DDP)
    assert sentence.support == SHOWN
    assert sentence.verdict.startswith(
        "single/spawn/1x1 takes the least device time: an epoch takes 1.00 device-hours ("
    )
    assert "The speed of ddp/spawn/1x2 costs 1.11 times" in sentence.why
    assert sentence.estimate is not None
    assert (sentence.estimate.value, sentence.unit) == (pytest.approx(1.0), "device-hours")


def test_little_device_time_is_told_in_device_seconds_and_kept_in_device_hours() -> None:
    sentence = said("device_hours", cell("single", 1, 3.0), cell("ddp", 2, 2.0))
    assert "an epoch takes 3.00 device-seconds" in sentence.verdict
    assert sentence.estimate is not None
    assert sentence.estimate.value == pytest.approx(3.0 / 3600)


def test_money_is_device_time_at_the_price_of_the_config() -> None:
    sentence = said("money", SINGLE, DDP, price_per_device_hour=2.5, currency="CHF")
    assert sentence.verdict.startswith(
        "single/spawn/1x1 costs the least money: an epoch takes 2.50 CHF (95 % interval: 2.45"
    )
    assert sentence.why.endswith("At 2.5 CHF per device-hour.")
    assert sentence.unit == "CHF"


def test_without_a_price_there_is_no_money() -> None:
    sentence = said("money", SINGLE, DDP)
    assert (sentence.support, sentence.estimate) == (WITHHELD, None)
    assert sentence.missing == "the price of a device-hour: advice.price_per_device_hour"


# Energy


def test_energy_is_the_sum_of_what_every_launch_tells() -> None:
    energies = monitor(single={"gpu": 500.0, "package": 300.0}, ddp={"gpu": 700.0, "package": 200.0})
    sentence = one("energy", tables_of(SINGLE, DDP, monitor=energies))
    assert sentence.support == SHOWN
    assert sentence.verdict.startswith("single/spawn/1x1 takes the least energy: an epoch takes 820 J")
    assert sentence.why.endswith("Counted are whole GPUs and CPU packages of the nodes used.")


def test_a_kind_that_some_launch_does_not_tell_counts_for_none() -> None:
    energies = monitor(single={"gpu": 500.0, "package": 300.0}, ddp={"gpu": 400.0, "package": NOT_TOLD})
    sentence = one("energy", tables_of(SINGLE, DDP, monitor=energies))
    assert sentence.verdict.startswith("ddp/spawn/1x2 takes the least energy: an epoch takes 410 J")
    assert sentence.why.endswith("Counted are whole GPUs of the nodes used.")


def test_without_energy_the_reason_is_that_of_the_monitor() -> None:
    energies = monitor(single={"package": NOT_TOLD}, ddp={"package": NOT_TOLD})
    sentence = one("energy", tables_of(SINGLE, DDP, monitor=energies))
    assert (sentence.support, sentence.estimate) == (WITHHELD, None)
    assert sentence.why == "What the monitor says: no RAPL."


# The share of the peak: 64 samples in 2 s are 32 per s, which of 1 TFLOP each are 32 TFLOP/s


ONE_TFLOP = Flops(1e12, "")


def on(device_model: str | None, launches: list[Measured], compute: str = "float16") -> list[Measured]:
    """The same launches on another device, computing in another format."""
    return [
        (
            trial,
            record
            and replace(
                record, environment={**MACHINE, "device_model": device_model}, effective_precision={"compute": compute}
            ),
            steps,
        )
        for trial, record, steps in launches
    ]


def test_the_share_is_of_the_peak_of_all_devices_in_what_they_computed_in() -> None:
    cells = (on("Tesla V100-SXM2-16GB", launches) for launches in (cell("single", 1, 2.0), cell("ddp", 2, 1.25)))
    sentence = one("peak", tables_of(*cells), ONE_TFLOP)
    assert sentence.support == SHOWN
    assert sentence.verdict.startswith("ddp/spawn/1x2 reaches 20.5 % (95 % interval")
    assert sentence.verdict.endswith("of its devices' peak, 125 TFLOP/s each in fp16.")
    assert "single/spawn/1x1 reaches 25.6 %" in sentence.why
    assert sentence.next_steps == (
        "More is lost on each device than by their number: try larger batches, compile, channels_last.",
    )


def test_where_scaling_loses_more_than_each_device_that_is_said() -> None:
    sentence = one(
        "peak", tables_of(cell("single", 1, 2.0), cell("ddp", 4, 1.0)), ONE_TFLOP, peak_TFLOP_per_s={"fp32": 40.0}
    )
    assert sentence.verdict.startswith("ddp/spawn/1x4 reaches 40.0 %")
    assert sentence.next_steps == ("More is lost by scaling than on each device: see what limits it, below.",)


def test_the_peak_of_a_cpu_is_not_known_unless_the_config_gives_it() -> None:
    tables = tables_of(cell("single", 1, 2.0), cell("ddp", 2, 1.25))
    sentence = one("peak", tables, ONE_TFLOP)
    assert sentence.support == WITHHELD
    assert sentence.verdict.endswith("can't be said: the peak of a CPU in fp32 is not known.")
    assert one("peak", tables, ONE_TFLOP, peak_TFLOP_per_s={"fp32": 100.0}).verdict.startswith(
        "ddp/spawn/1x2 reaches 25.6 %"
    )
    assert one("peak", tables, ONE_TFLOP, peak_TFLOP_per_s={"bf16": 100.0}).support == WITHHELD


def test_more_than_the_peak_is_no_share_of_it() -> None:
    tables = tables_of(cell("single", 1, 2.0), cell("ddp", 2, 1.25))
    sentence = one("peak", tables, ONE_TFLOP, peak_TFLOP_per_s={"fp32": 10.0})
    assert (sentence.support, sentence.estimate) == (WITHHELD, None)
    assert "would reach 256 % of 10 TFLOP/s, so that is not its peak" in sentence.verdict


def test_what_can_not_be_counted_is_said() -> None:
    sentence = one("peak", tables_of(SINGLE, DDP), Flops(None, "it computes nothing"), peak_TFLOP_per_s={"fp32": 1.0})
    assert sentence.verdict.endswith("of the operations that the model asks for, it computes nothing.")


@pytest.mark.parametrize(
    ("name", "fp16"),
    [
        ("NVIDIA A100-SXM4-40GB", 312.0),
        ("NVIDIA A100 80GB PCIe", 312.0),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 PCIe", 756.5),
        ("Tesla V100-PCIE-16GB", 112.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA A40", 149.7),
    ],
)
def test_a_gpu_is_known_by_the_words_of_its_name(name: str, fp16: float) -> None:
    peak = peak_of(name)
    assert peak is not None
    assert peak.TFLOP_per_s["fp16"] == fp16


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA GeForce RTX 3060", "NVIDIA A4000", ""])
def test_a_share_of_a_gpu_and_one_that_is_not_listed_are_not_known(name: str) -> None:
    assert peak_of(name) is None


def test_a_lower_precision_has_no_lower_peak() -> None:
    for peak in PEAKS:
        known = [peak.TFLOP_per_s[name] for name in ("fp32", "tf32", "fp16") if name in peak.TFLOP_per_s]
        assert known == sorted(known)
        assert peak.source


# Prediction: an epoch on 4 devices in 1.8 to 2.3 s, with the ledger's entry


MEASURED = [cell("single", 1, 6.0), cell("ddp", 2, 3.2)]


def test_a_prediction_below_what_was_measured_says_how_much_faster_with_its_interval() -> None:
    sentence = one("prediction", tables_of(*MEASURED, ledger=[an_entry()]))
    assert sentence.support == SHOWN
    assert sentence.verdict == (
        "ddp/spawn/1x4 would take 2.00 s (80 % interval of one launch: 1.80 to 2.30) for an epoch, 1.60 times (both intervals at their ends: 1.36 "
        "to 1.81) as fast as "
        "ddp/spawn/1x2, which took the least of what was measured of ddp/spawn."
    )
    assert sentence.why == (
        "Predicted efficiency 80 %, limited by the exchange of gradients. None of its predictions was measured, so here it is "
        "untested."
    )


def test_a_prediction_above_what_was_measured_says_to_stay() -> None:
    sentence = one("prediction", tables_of(cell("single", 1, 6.0), cell("ddp", 2, 1.5), ledger=[an_entry()]))
    assert sentence.support == SHOWN
    assert sentence.verdict.startswith("On 4 devices ddp/spawn would not be faster: ddp/spawn/1x4 would take 2.00 s")
    assert sentence.next_steps == ("Stay with 2 devices.",)


@pytest.mark.parametrize("epochs_s", [2.1, [3.2, 3.3]], ids=["intervals overlap", "no interval of what was measured"])
def test_a_prediction_that_may_be_faster_or_slower_is_left_open(epochs_s: Any) -> None:
    sentence = one("prediction", tables_of(cell("single", 1, 6.0), cell("ddp", 2, epochs_s), ledger=[an_entry()]))
    assert sentence.support == PARTLY
    assert "whether that is less than ddp/spawn/1x2 is open" in sentence.verdict
    assert sentence.missing


def test_how_far_earlier_predictions_were_right_is_told() -> None:
    ahead = an_entry(
        devices_per_node=8,
        epoch_time_s=1.2,
        intervals={"80": Interval(low=1.1, high=1.3), "95": Interval(low=1, high=2)},
    )
    sentence = one("prediction", tables_of(*MEASURED, cell("ddp", 4, 1.9), ledger=[an_entry(), ahead]))
    assert sentence.cell == "ddp/spawn/1x8"
    assert sentence.why.endswith("The one of its predictions that was measured held: an error of 5.3 %.")


def test_predictions_that_mostly_failed_are_not_passed_on() -> None:
    ahead = an_entry(devices_per_node=8)
    sentence = one("prediction", tables_of(*MEASURED, cell("ddp", 4, 5.0), ledger=[an_entry(), ahead]))
    assert sentence.support == WITHHELD
    assert sentence.verdict.endswith("most predictions that were measured were wrong.")


def test_what_was_calibrated_from_or_replaced_is_no_prediction() -> None:
    old, calibrating = an_entry(epoch_time_s=0.1), an_entry(devices_per_node=2, epoch_time_s=0.1)
    sentence = one("prediction", tables_of(*MEASURED, ledger=[old, calibrating, an_entry(code="f" * 16)]))
    assert sentence.verdict.startswith("ddp/spawn/1x4 would take 2.00 s")


# Its page


def test_the_page_says_everything_and_takes_nothing_for_markup() -> None:
    sentences = advice(tables_of(*MEASURED))
    text = page("a<b", sentences)
    assert "<h1>What to do: a&lt;b</h1>" in text
    plain = re.sub("<[^>]*>", "", text)
    for sentence in sentences:
        assert sentence.verdict.replace("'", "&#x27;") in plain
    assert text.count("<section") == len({sentence.about for sentence in sentences})
    assert "<code>make more</code>" in page("x", advice(tables_of(cell("single", 1, [6.0]), cell("ddp", 2, [3.0]))))


# Words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.459494, "0.459"),
        (9.996, "10.0"),
        (1786.8, "1,787"),
        (0.000188, "0.000188"),
        (735.2, "735"),
        (-3.2, "-3.20"),
        (0, "0"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_an_amount_says_what_its_ends_are() -> None:
    assert amount(Estimate(2.0, 1.9, 2.25, "95 % interval"), "s") == "2.00 s (95 % interval: 1.90 to 2.25)"
    assert amount(Estimate(2.0, 2.0, 2.0, "one value"), "s") == "2.00 s (one launch)"


@pytest.mark.parametrize(("names", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_lists_end_with_and(names: list[str], text: str) -> None:
    assert listed(names) == text
