"""Advice on what limits a cell: by blocks of steps, and by the control beside it."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest
from advising import CONTENDED, advice, cell, explained, one, said, tables_of
from factories import a_step, a_trial, explained_record

from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD

SINGLE = cell("single", 1, 4.0)


# Causes, by blocks of steps: a plain step takes 40 ms


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


NONE = [f"{part}{end}" for part in ("transfer_s", "stretch_s") for end in ("", "_low", "_high")]


def test_a_cause_below_zero_is_no_candidate_and_has_no_remedy() -> None:
    made = tables_of(explained(**CONTENDED))
    within = {"contention_s_low": 0.001, "waiting_s": -0.0005, "waiting_s_low": -0.003, "waiting_s_high": 0.002}
    sentence = one("cause", {**made, "causes": made["causes"].assign(**within, **dict.fromkeys(NONE, 0.0))})
    assert sentence.verdict.endswith("; waiting for other ranks may take as much.")
    assert "Give all ranks" not in " ".join(sentence.next_steps)
    assert "Not shown to take any time: waiting for other ranks -0.50 ms (95 % interval: -3.00 to 2.00)" in sentence.why


def test_causes_without_numbers_are_withheld() -> None:
    made = tables_of(explained(**CONTENDED))
    ends = {name: float("nan") for name in made["causes"] if str(name).endswith(("_s_low", "_s_high"))}
    sentence = one("cause", {**made, "causes": made["causes"].assign(**ends)})
    assert sentence.support == WITHHELD
    assert "no part of its steps has an interval" in sentence.verdict
    assert "nan" not in sentence.verdict


def test_a_cause_without_an_interval_may_be_the_largest() -> None:
    made = tables_of(explained(**CONTENDED))
    endless = {"data_wait_s": 0.04, "data_wait_s_low": float("nan"), "data_wait_s_high": float("nan")}
    sentence = one("cause", {**made, "causes": made["causes"].assign(**endless)})
    assert sentence.support == WITHHELD
    assert "without an interval is waiting for data (40.0 ms)" in sentence.verdict


def test_a_cause_that_is_longer_than_the_step_is_not_named() -> None:
    made = tables_of(explained(**CONTENDED))
    longer = {"contention_s": 0.06, "contention_s_low": 0.055, "contention_s_high": 0.065}
    sentence = one("cause", {**made, "causes": made["causes"].assign(**longer)})
    assert sentence.support == WITHHELD
    assert re.search(r"contention would take 60.0 ms .* of a step of [\d.]+ ms, which can't be", sentence.verdict)
    assert "times as fast" not in sentence.why


def test_where_no_cause_takes_time_more_launches_are_not_asked_for() -> None:
    made = tables_of(explained(**CONTENDED))
    parts = [name.removesuffix("_low") for name in made["causes"] if str(name).endswith("_s_low")]
    below = {f"{part}{end}": value for part in parts for end, value in [("", -2e-3), ("_low", -3e-3), ("_high", -1e-3)]}
    kept = {"step_s": made["causes"].step_s}
    sentence = one("cause", {**made, "causes": made["causes"].assign(**below | kept)})
    assert "no cause takes any time" in sentence.verdict
    assert sentence.next_steps == ("Look at larger topologies.",)
    by_control = said("cause", SINGLE, cell("ddp", 2, 1.5), cell("independent", 2, 1.6))
    assert by_control.verdict == "ddp/spawn/1x2 loses nothing by its number of devices: no cause takes any time."
    assert "make" not in " ".join(by_control.next_steps)


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


def test_what_ddp_costs_on_one_device_is_not_contention() -> None:
    """Two ranks are each as fast as one under the control: there is no contention, and the wrapper takes a fifth."""
    cells = cell("independent", 1, 5.0), cell("ddp", 1, 5.0), cell("independent", 2, 2.5), cell("ddp", 2, 2.55)
    sentence = said("cause", SINGLE, *cells)
    assert sentence.verdict.startswith("ddp/spawn/1x2 is limited most by DDP's wrapper")
    assert sentence.estimate is not None
    assert sentence.estimate.value == pytest.approx(100 * 0.2 / 1.02)
    assert "contention takes 0.00 % (95 % interval: -3.20 to 3.20), which may be none" in sentence.why


def test_without_one_device_under_ddp_its_wrapper_and_contention_are_one() -> None:
    sentence = said("cause", SINGLE, cell("ddp", 2, 3.1), cell("independent", 2, 3.0))
    assert "is limited most by contention or DDP's wrapper" in sentence.verdict


def test_ranks_alone_on_their_nodes_are_not_to_be_fewer_on_each() -> None:
    apart = {"nodes": 2, "batch_size_per_device": 16}
    sentence = said("cause", SINGLE, cell("independent", 1, 3.0, **apart), cell("ddp", 1, 3.1, **apart))
    assert "contention" in sentence.verdict
    assert "fewer" not in " ".join(sentence.next_steps)


def test_no_share_of_a_sample_is_more_than_all_of_it() -> None:
    noisy = cell("ddp", 2, [2.0, 2.6, 3.0, 3.4, 5.0, 9.0])
    quiet = cell("single", 1, [4.0] * 6), cell("independent", 2, [2.0, 2.0, 2.0, 2.0, 2.0, 2.001])
    sentence = said("cause", *quiet, noisy)
    assert sentence.estimate is not None
    assert sentence.estimate.low <= sentence.estimate.value <= sentence.estimate.high < 100


@pytest.mark.parametrize("ddp_s", [2.4, 1.5])
def test_a_cause_below_zero_takes_no_time(ddp_s: float) -> None:
    sentence = said("cause", SINGLE, cell("ddp", 2, ddp_s), cell("independent", 2, 1.6))
    text = f"{sentence.verdict} {sentence.why}".lower()
    assert "contention or ddp's wrapper takes no time" in text
    assert "takes -" not in text
