"""Advice on dozens of cells: sentences stay readable, and what they follow from names every cell."""

from __future__ import annotations

import random

import pytest
from advising import CELL, advice, cell, one, tables_of

from dpscale.advice.least import MAKE_MORE, NARROWER, SET_REPEATS
from dpscale.advice.sentences import PARTLY, WITHHELD
from dpscale.tables.schema import Measured

STRATEGIES = ("ddp", "allreduce", "ring", "parameter_server", "zero", "local_sgd")
MOST_NAMED = 6  # in one sentence: what it is about, and those named of the others


def many(launches: int) -> list[list[Measured]]:
    """36 cells on several devices, each 10 % around a time of its own that lies among the others', and one device."""
    chance = random.Random(0)
    return [
        cell("single", 1, [4.0 * chance.uniform(0.9, 1.1) for _ in range(launches)]),
        *(
            cell(
                strategy,
                devices,
                [chance.uniform(0.9, 1.1) * 4.5 / devices for _ in range(launches)],
                launcher=launcher,
            )
            for strategy in STRATEGIES
            for launcher in ("spawn", "torchrun")
            for devices in (2, 4, 8)
        ),
    ]


@pytest.fixture(scope="module", params=[3, 12])
def tables(request):
    return tables_of(*many(request.param))


def test_no_sentence_lists_dozens_of_cells(tables) -> None:
    for sentence in advice(tables):
        for text in (sentence.verdict, sentence.why, sentence.missing, *sentence.next_steps):
            for part in text.split(". "):
                limit = 2 * MOST_NAMED if sentence.about == "in_short" else MOST_NAMED
                assert len({*CELL.findall(part)}) <= limit, part


def test_what_a_sentence_follows_from_names_them_all(tables) -> None:
    for about in ("fastest", "efficiency"):
        rows = {row for evidence in one(about, tables).follows_from for row in evidence.rows}
        assert len(rows) == 37


def test_with_few_launches_one_command_is_asked_for() -> None:
    in_short = one("in_short", tables_of(*many(3)))
    assert in_short.support == WITHHELD
    assert [step for step in in_short.next_steps if step == MAKE_MORE or step.startswith(SET_REPEATS)] == [
        "Set repeats: 7."
    ]


def test_the_nearest_contenders_are_named_of_many() -> None:
    made = tables_of(*many(12))
    sentence = one("fastest", made)
    assert sentence.support == PARTLY
    assert "or one of 9 other cells trains fastest, which of them is open" in sentence.verdict
    on_eight = made["summary"][made["summary"].devices == 8].sort_values("epoch_time_s")
    nearest = [f"{row.strategy}/{row.launcher}/1x8" for row in on_eight.itertuples()]
    assert CELL.findall(sentence.verdict)[:3] == nearest[:3]
    assert "8 other cells are as undecided." in sentence.why
    assert NARROWER in sentence.next_steps
