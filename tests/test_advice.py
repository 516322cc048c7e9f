"""Advice on made-up tables whose answer is known: the right sentence, or silence that says what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import pandas as pd
import pytest
from advising import advice, cell, said, tables_of
from factories import a_trial, an_unavailable_record

from dpscale.advice.sentences import PARTLY, QUESTIONS, SHOWN, WITHHELD, Sentence
from dpscale.record import Record
from dpscale.tables.advice import make_table
from dpscale.tables.schema import TABLES, Measured
from dpscale.tables.schema.outlook import ADVICE


@dataclass(frozen=True)
class Expected:
    """What is to be said of speed, and of efficiency: the support, and parts of the sentence and of what is missing."""

    fastest: tuple[str, str]
    efficiency: tuple[str, str]
    missing: str = ""  # of the first that is not shown
    why: str = ""  # of the same, or of speed
    cells: list[list[Measured]] = field(default_factory=list)


LARGE = a_trial(devices_per_node=4)
UNKNOWN, UP_TO_UNKNOWN = "Which cell trains fastest can't be said", "Up to how many devices scaling efficiency stays"
CASES = {
    "more devices are faster, and efficient enough": Expected(
        fastest=(SHOWN, "ddp/spawn/1x4 trains fastest: an epoch takes 1.15 s (95 % interval: 1.13 to 1.17)."),
        efficiency=(SHOWN, "Up to 4 devices scaling efficiency stays at 80 % or more: ddp/spawn/1x4 has 87.0 %"),
        why="All 2 other cells take more time, beyond noise: the nearest, ddp/spawn/1x2, 1.91 times",
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("ddp", 4, 1.15)],
    ),
    "more devices are slower": Expected(
        fastest=(SHOWN, "ddp/spawn/1x2 trains fastest: an epoch takes 2.20 s"),
        efficiency=(SHOWN, "Up to 2 devices scaling efficiency stays at 80 % or more: ddp/spawn/1x2 has 90.9 %"),
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("ddp", 4, 3.0)],
    ),
    "two launchers tie": Expected(
        fastest=(PARTLY, "ddp/spawn/1x2 or ddp/torchrun/1x2 trains fastest, which of them is open"),
        efficiency=(SHOWN, "Up to 2 devices"),
        missing="launches of ddp/spawn/1x2 and ddp/torchrun/1x2: so many that their intervals part",
        why="ddp/torchrun/1x2 may take from",
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("ddp", 2, 2.205, launcher="torchrun")],
    ),
    "all launches take the same, to the last digit": Expected(
        fastest=(WITHHELD, f"{UNKNOWN}: all launches of single/spawn/1x1 and ddp/spawn/1x2 are equal, 2.00 s"),
        efficiency=(SHOWN, "No measured number of devices above one has a scaling efficiency of 80 % or more: at most"),
        missing="a difference between single/spawn/1x1 and ddp/spawn/1x2: all launches are equal",
        cells=[cell("single", 1, [2.0] * 6), cell("ddp", 2, [2.0] * 6)],
    ),
    "all intervals overlap": Expected(
        fastest=(WITHHELD, f"{UNKNOWN}. So far ddp/spawn/1x2 trained fastest"),
        efficiency=(SHOWN, "No measured number of devices above one has a scaling efficiency of 80 %"),
        missing="launches of ddp/spawn/1x2 and single/spawn/1x1: so many that their intervals part",
        cells=[cell("single", 1, [2.0, 2.3, 2.6, 1.9, 2.2, 2.5]), cell("ddp", 2, [2.1, 2.2, 2.5, 1.8, 2.0, 2.4])],
    ),
    "one launch of each": Expected(
        fastest=(WITHHELD, f"{UNKNOWN}. So far ddp/spawn/1x2 trained fastest: 2.20 s (one launch) an epoch."),
        efficiency=(WITHHELD, f"{UP_TO_UNKNOWN} at 80 % or more can't be said."),
        missing="launches: 6 of each of ddp/spawn/1x2 and single/spawn/1x1",
        why="With 1 launch a difference can't be told from chance: it takes 6 of each. All launches of single/spawn/1x1 took more.",
        cells=[cell("single", 1, [4.0]), cell("ddp", 2, [2.2])],
    ),
    "three launches of each, wide apart": Expected(
        fastest=(WITHHELD, "So far ddp/spawn/1x2 trained fastest: 2.20 s (range of 3: 2.10 to 2.30) an epoch."),
        efficiency=(WITHHELD, UP_TO_UNKNOWN),
        missing="launches: 6 of each of ddp/spawn/1x2 and single/spawn/1x1",
        why="All launches of single/spawn/1x1 took more.",
        cells=[cell("single", 1, [4.0, 4.1, 4.2]), cell("ddp", 2, [2.1, 2.2, 2.3])],
    ),
    "enough launches but of one cell": Expected(
        fastest=(PARTLY, "ddp/spawn/1x2 or ddp/torchrun/1x2 trains fastest, which of them is open"),
        efficiency=(SHOWN, "Up to 2 devices"),
        missing="launches: 6 of each of ddp/spawn/1x2 and ddp/torchrun/1x2",
        why="All launches of ddp/torchrun/1x2 took more. single/spawn/1x1 takes 1.82 times",
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("ddp", 2, [2.5, 2.6], launcher="torchrun")],
    ),
    "no base": Expected(
        fastest=(SHOWN, "ddp/spawn/1x4 trains fastest"),
        efficiency=(WITHHELD, "can't be said: nothing was measured on one device with all else equal."),
        missing="a base: single, or the same strategy on one device",
        cells=[cell("ddp", 2, 2.2), cell("ddp", 4, 1.15)],
    ),
    "no base of those on more devices": Expected(
        fastest=(SHOWN, "half/spawn/1x4 trains fastest"),
        efficiency=(PARTLY, "At least up to 2 devices scaling efficiency stays at 80 % or more: ddp/spawn/1x2"),
        missing="a base of half/spawn/1x4",
        why="There is no base for half/spawn/1x4",
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("half", 4, 0.8, base="ddp", precision="bf16")],
    ),
    "an interval that holds 80 %": Expected(
        fastest=(SHOWN, "ddp/spawn/1x4 trains fastest"),
        efficiency=(
            PARTLY,
            "At least up to 2 devices scaling efficiency stays at 80 % or more: ddp/spawn/1x2 has 90.9 %",
        ),
        missing="launches of ddp/spawn/1x4: so many that its interval lies on one side of 80 %",
        why="Intervals hold 80 %: ddp/spawn/1x4 has 80.0 %",
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("ddp", 4, 1.25)],
    ),
    "a single cell": Expected(
        fastest=(WITHHELD, f"{UNKNOWN}: single/spawn/1x1 is the only one; an epoch took 4.00 s"),
        efficiency=(WITHHELD, f"{UP_TO_UNKNOWN} at 80 % or more can't be said: only one device was measured."),
        missing="launches of another strategy, launcher or topology",
        cells=[cell("single", 1, 4.0)],
    ),
    "nothing was measured": Expected(
        fastest=(WITHHELD, f"{UNKNOWN}: no cell that trains a model was measured."),
        efficiency=(
            WITHHELD,
            "nothing that trains a model was measured.",
        ),
        missing="launches of at least two cells",
        cells=[[(a_trial(), None, None)], [(LARGE, an_unavailable_record(LARGE), None)]],
    ),
    "the control is fastest": Expected(
        fastest=(SHOWN, "ddp/spawn/1x2 trains fastest"),
        efficiency=(SHOWN, "Up to 2 devices scaling efficiency stays at 80 % or more: ddp/spawn/1x2"),
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("independent", 2, 2.0)],
    ),
    "the placebo is fastest": Expected(
        fastest=(SHOWN, "ddp/spawn/1x2 trains fastest"),
        efficiency=(SHOWN, "Up to 2 devices scaling efficiency stays at 80 % or more: ddp/spawn/1x2"),
        cells=[cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("placebo", 2, 2.1, base="ddp")],
    ),
}


@cache
def made(case: str) -> tuple[dict[str, pd.DataFrame], list[Sentence]]:
    """Its tables, and what is said of them."""
    tables = tables_of(*CASES[case].cells)
    return tables, advice(tables)


@pytest.mark.parametrize("case", CASES)
def test_the_right_sentence_or_silence(case: str) -> None:
    expected, sentences = CASES[case], {sentence.about: sentence for sentence in made(case)[1]}
    for about in ("fastest", "efficiency"):
        support, verdict = getattr(expected, about)
        assert sentences[about].support == support
        assert verdict in sentences[about].verdict
    open_ = [sentences[about] for about in ("fastest", "efficiency") if sentences[about].support != SHOWN]
    first = open_[0] if open_ else sentences["fastest"]
    assert first.missing == expected.missing
    assert expected.why in first.why


def test_the_more_cells_the_best_is_chosen_from_the_more_it_takes() -> None:
    """Of one other the rank test's p-value is 0.015, which four of them make 0.06."""
    best = cell("single", 1, [1.0, 1.1, 1.2, 1.3, 1.4, 1.75])
    near = cell("ddp", 2, [1.5, 1.6, 1.7, 1.8, 1.9, 2.0])
    far = [cell("ddp", devices, 9.0) for devices in (4, 8, 16)]
    assert said("fastest", best, near).support == SHOWN
    assert said("fastest", best, near, *far).verdict.startswith("single/spawn/1x1 or ddp/spawn/1x2 trains fastest")


# What every sentence keeps, whatever it is about


@pytest.fixture(scope="module")
def everything() -> list[Sentence]:
    return [sentence for case in CASES for sentence in made(case)[1]]


def test_what_is_shown_lacks_nothing_and_what_is_not_says_what_is_missing(everything: list[Sentence]) -> None:
    assert [sentence for sentence in everything if (sentence.support == SHOWN) == bool(sentence.missing)] == []


def test_every_question_is_answered_or_withheld_once_in_their_order() -> None:
    for case in CASES:
        found = [sentence.about for sentence in made(case)[1]]
        assert list(dict.fromkeys(found)) == list(QUESTIONS)
        assert [about for about in QUESTIONS if found.count(about) > 1 and about != "cause"] == []


def test_a_number_stands_only_beside_rows_that_it_follows_from(everything: list[Sentence]) -> None:
    assert [sentence for sentence in everything if sentence.estimate and not sentence.follows_from] == []


def test_sentences_begin_with_a_capital_or_a_name_and_end_with_a_full_stop(everything: list[Sentence]) -> None:
    for sentence in everything:
        for text in filter(None, [sentence.verdict, sentence.why, *sentence.next_steps]):
            assert text.endswith(".")
            assert text[0].isupper() or "/" in text.split(" ")[0]
            assert "  " not in text


# Their table


def test_the_table_has_a_row_for_each_sentence_with_its_number() -> None:
    tables = tables_of(cell("single", 1, 4.0), cell("ddp", 2, 2.2))
    table = make_table("quickstart", advice(tables))
    assert list(table.columns) == list(ADVICE) == list(TABLES["advice"])
    row = table.set_index("about").loc["fastest"]
    assert (row.experiment, row.support, row.cell, row.unit) == ("quickstart", SHOWN, "ddp/spawn/1x2", "s")
    assert (row.value, row.value_low, row.value_high) == pytest.approx((2.2, 2.156, 2.244))
    assert row.follows_from == "timings.csv: epoch_time_s of ddp/spawn/1x2, single/spawn/1x1"
    assert pd.isna(table.set_index("about").loc["prediction", "value"])


# In short


def test_in_short_is_speed_and_efficiency_with_what_limits_and_what_to_do() -> None:
    short, *others = advice(tables_of(cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("ddp", 4, 3.0)))
    speed, devices = others[0], others[1]
    assert short.verdict == f"{speed.verdict} {devices.verdict}"
    assert (speed.support, devices.support, short.support) == (SHOWN, SHOWN, PARTLY)  # nothing says what limits it
    assert short.next_steps[0] == "Train on 2 rather than 4 devices: more of them did not help here."
    assert "Set explain: true" in short.next_steps[-1]


def test_the_same_step_is_asked_for_once() -> None:
    short = said("in_short", cell("single", 1, [4.0]), cell("ddp", 2, [2.2]))
    assert len(short.next_steps) == len(set(short.next_steps))


# What to know before trusting it


def test_warnings_of_all_cells_that_are_compared_are_repeated() -> None:
    """A disturbed loser makes a winner as well as a disturbed winner does."""
    slow = cell("single", 1, 4.0)
    crowded = [(trial, _oversubscribed(record), steps) for trial, record, steps in cell("ddp", 2, 2.2)]
    for about in ("fastest", "efficiency", "device_hours"):
        assert said(about, slow, crowded).warnings == (
            "ddp/spawn/1x2: oversubscribed: 2 ranks x 1 threads on 2 usable CPUs (in 6 of 6 repeats)",
        )


def test_warnings_of_the_base_go_with_an_efficiency() -> None:
    base = [(trial, _oversubscribed(record), steps) for trial, record, steps in cell("single", 1, 4.0)]
    assert "single/spawn/1x1: oversubscribed" in said("efficiency", base, cell("ddp", 2, 2.2)).warnings[0]


def _oversubscribed(record: Record | None) -> Record:
    assert record is not None
    return replace(record, oversubscribed=True)


def test_another_precision_than_the_others_is_said() -> None:
    half = cell("half", 2, 1.5, base="ddp", precision="bf16")
    assert said("fastest", cell("single", 1, 4.0), half).warnings == ("half/spawn/1x2 is in bf16, others are in fp32",)


def test_the_efficiency_that_is_asked_for_can_be_chosen() -> None:
    cells = cell("single", 1, 4.0), cell("ddp", 2, 2.2), cell("ddp", 4, 3.0)
    little, much = (said("efficiency", *cells, least_efficiency=share).verdict for share in (0.3, 0.95))
    assert little.startswith("Up to 4 devices scaling efficiency stays at 30 % or more: ddp/spawn/1x4 has 33.3 %")
    assert much.startswith(
        "No measured number of devices above one has a scaling efficiency of 95 % or more: at most, ddp/spawn/1x2"
    )
