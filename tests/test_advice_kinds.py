"""Advice of each kind on made-up tables: costs, energy, share of the peak, causes, prediction; and its page."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from advising import advice, cell, said, tables_of
from factories import MACHINE, a_step, a_trial, an_entry, explained_record

from dpscale.advice.page import page
from dpscale.advice.peak import Flops
from dpscale.advice.peaks import PEAKS, peak_of
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD, Sentence
from dpscale.advice.words import amount, number
from dpscale.forecasting.ledger import Interval
from dpscale.statistics import Estimate
from dpscale.tables.schema import Measured, frame
from dpscale.words import listed

SINGLE, DDP = cell("single", 1, 3600.0), cell("ddp", 2, 2000.0)  # an hour, and 1.11 device-hours


def one(about: str, tables: dict[str, pd.DataFrame], flops: Flops | None = None, **settings: Any) -> Sentence:
    return next(sentence for sentence in advice(tables, flops, **settings) if sentence.about == about)


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


def monitor(**joules: dict[str, float]) -> pd.DataFrame:
    """Of six launches of `single` and `ddp`, what each kind of device told; nothing where that is not a number."""
    rows = [
        {"experiment": "quickstart", "strategy": strategy, "base": strategy, "launcher": "spawn", "nodes": 1, "node": 0}
        | {"devices_per_node": devices, "devices": devices, "repeat": repeat, "kind": kind, "name": kind}
        | {"energy_per_epoch_J": joules_of_cell * (1 + repeat / 100), "reason": "" if joules_of_cell > 0 else "no RAPL"}
        for strategy, devices in (("single", 1), ("ddp", 2))
        for repeat in range(6)
        for kind, joules_of_cell in joules[strategy].items()
    ]
    return frame("monitor", rows)


NOT_TOLD = float("nan")


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


# Causes, by blocks of steps: a plain step takes 40 ms


def explained(launches: int = 2, **controls: Any) -> list[Measured]:
    trials = [a_trial(explain=True, repeat=repeat) for repeat in range(launches)]
    found = [explained_record(trial, **controls) for trial in trials]
    return [(trial, record, {**steps, **_as_long_as(steps, 0.049)}) for trial, record, steps in found]


def _as_long_as(steps: Any, step_s: float) -> dict[str, Any]:
    return {name: steps[name] * 0 + step_s / 4 for name in steps if name.endswith("_s")}


CONTENDED = {"independent": a_step(ready=(20, 38)), "full": a_step(ready=(20, 38), exchanges=(0, 1))}


def test_the_largest_cause_is_named_with_its_share_what_it_costs_and_what_helps() -> None:
    sentence = one("cause", tables_of(explained(**CONTENDED)))
    assert sentence.support == SHOWN
    assert (
        sentence.verdict
        == "ddp/spawn/1x2 is limited most by contention: 8.00 ms (95 % interval: 8.00 to 8.00) of a step of 49.0 ms."
    )
    assert sentence.why == (
        "One rank alone on its node takes 40.0 ms. Without contention a step would take 41.0 ms, and training be 1.20 times "
        "(95 % interval: 1.20 to 1.20) as fast. Less: the exchange of gradients 1.00 ms (95 % interval: 1.00 to 1.00)."
    )
    assert "a faster network would not help" in sentence.next_steps[0]
    assert sentence.warnings == ()


def test_stretch_and_transfer_are_one_cause_for_the_same_helps() -> None:
    """Each of the two is smaller than the contention, and both together are larger."""
    shorter = {"independent": a_step(ready=(20, 34)), "full": a_step(ready=(20, 36), exchanges=(0, 3))}
    sentence = one("cause", tables_of(explained(**shorter)))
    assert (
        sentence.verdict
        == "ddp/spawn/1x2 is limited most by the exchange of gradients: 5.00 ms (95 % interval: 5.00 to 5.00) of a step of 49.0 ms."
    )


def changed_causes(tables: dict[str, pd.DataFrame], **columns: float) -> dict[str, pd.DataFrame]:
    return {**tables, "causes": tables["causes"].assign(**columns)}


def test_causes_whose_intervals_overlap_are_both_named() -> None:
    tables = changed_causes(tables_of(explained(**CONTENDED)), contention_s_low=0.0008)
    sentence = one("cause", tables)
    assert sentence.support == PARTLY
    assert sentence.verdict == (
        "ddp/spawn/1x2 is limited most by contention or the exchange of gradients, which takes more is open: 8.00 ms (95 % "
        "interval: 0.80 to 8.00) and 1.00 ms (95 % interval: 1.00 to 1.00) of a step of 49.0 ms."
    )
    assert len(sentence.next_steps) == 2
    assert sentence.missing.startswith("launches of ddp/spawn/1x2")


@pytest.mark.parametrize(
    ("columns", "because"),
    [
        ({"contention_s_low": -0.001}, "no cause is shown to take any time; the largest, contention, takes 8.00 ms"),
        (
            {"unexplained_s_high": 0.009},
            "up to 9.00 ms are unexplained, and the largest cause, contention, takes 8.00 ms",
        ),
        ({"beside_training_percent": 40.0}, "the steps that explain it took 40 % longer than those of the training"),
        ({"spread": "range of 5"}, "range of 5 of its parts is no interval"),
    ],
)
def test_no_cause_is_named_where_it_can_not_be_trusted(columns: dict[str, Any], because: str) -> None:
    sentence = one("cause", changed_causes(tables_of(explained(**CONTENDED)), **columns))
    assert sentence.support == WITHHELD
    assert because in sentence.verdict
    assert sentence.missing


def test_causes_of_a_single_launch_are_told_with_that() -> None:
    sentence = one("cause", tables_of(explained(launches=1, **CONTENDED)))
    assert sentence.warnings == ("ddp/spawn/1x2: from one launch, so how launches differ is in no interval",)


def test_waiting_names_the_rank_that_comes_last() -> None:
    late = {"plain": [a_step(), a_step()], "full": [a_step(exchanges=(3, 24)), a_step(backward=20, exchanges=(3, 4))]}
    tables = changed_causes(
        tables_of(explained(**late)), beside_training_percent=0.0, unexplained_s_low=0.0, unexplained_s_high=0.0
    )
    tables["causes"] = tables["causes"].assign(
        waiting_s=0.02, waiting_s_low=0.02, waiting_s_high=0.02, unexplained_s=0.0
    )
    sentence = one("cause", tables)
    assert sentence.verdict.startswith("ddp/spawn/1x2 is limited most by waiting for other ranks")
    assert sentence.next_steps[-1] == "Rank 1 on laptop came last in 12 of 12 rounds."


def test_cells_on_the_most_devices_come_first() -> None:
    more = [explained_record(a_trial(explain=True, devices_per_node=4), **CONTENDED)]
    found = [sentence.cell for sentence in advice(tables_of(explained(**CONTENDED), more)) if sentence.about == "cause"]
    assert found == ["ddp/spawn/1x4", "ddp/spawn/1x2"]


# Causes, by the control beside a cell that explains nothing


def test_a_control_as_slow_as_ddp_says_contention() -> None:
    sentence = said("cause", cell("single", 1, 4.0), cell("ddp", 2, 3.1), cell("independent", 2, 3.0))
    assert sentence.support == SHOWN
    assert sentence.verdict.startswith(
        "ddp/spawn/1x2 is limited most by contention or DDP's wrapper: of the device time of a sample it takes 32.3 %"
    )
    assert sentence.why.startswith("The exchange of gradients takes 3.23 %")


def test_a_control_that_scales_says_the_exchange_whichever_of_the_two_is_planned_first() -> None:
    cells = cell("ddp", 2, 3.0), cell("independent", 2, 2.1)
    for order in (cells, cells[::-1]):
        sentence = said("cause", cell("single", 1, 4.0), *order)
        assert sentence.verdict.startswith(
            "ddp/spawn/1x2 is limited most by the exchange of gradients: of the device time of a"
        )
        assert sentence.estimate is not None
        assert sentence.estimate.value == pytest.approx(30.0)


def test_parts_that_overlap_are_not_told_apart() -> None:
    sentence = said("cause", cell("single", 1, 4.0), cell("ddp", 2, 2.6), cell("independent", 2, 2.3))
    assert sentence.support == WITHHELD
    assert sentence.verdict == "What limits ddp/spawn/1x2 most can't be said: its causes do not part."


def test_three_launches_beside_a_control_are_no_interval() -> None:
    few = [cell("single", 1, [4.0] * 3), cell("ddp", 2, [3.0] * 3), cell("independent", 2, [2.0] * 3)]
    sentence = said("cause", *few)
    assert sentence.support == WITHHELD
    assert sentence.missing == "launches: 6 of ddp/spawn/1x2, independent/spawn/1x2 and single/spawn/1x1"


def test_without_blocks_and_control_nothing_says_what_limits() -> None:
    sentence = said("cause", cell("single", 1, 4.0), cell("ddp", 2, 2.2))
    assert sentence.missing == "explain: true, or the strategy independent"
    assert sentence.next_steps == ("Set explain: true, which says where a step's time goes.",)


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
