"""Made-up tables for advice: cells of known times, and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from factories import a_step, a_trial, an_entry, explained_record, repeats

from dpscale.advice.peak import Flops
from dpscale.advice.sentences import SHOWN, Sentence
from dpscale.advice.settings import AdviceConfig
from dpscale.advice.together import advise
from dpscale.forecasting.ledger import Entry, Interval, Ledger
from dpscale.tables import make_tables
from dpscale.tables.cells import name_of
from dpscale.tables.prediction import launches_of
from dpscale.tables.prediction import make_table as prediction_of
from dpscale.tables.schema import Measured, frame

NOISE = (0.999, 1.01, 0.99, 1.02, 0.98, 1.001)  # of six launches, which have an interval


def cell(strategy: str, devices: int, epoch_s: float | Sequence[float], **changes: Any) -> list[Measured]:
    """Launches of a cell: six with little noise around a time, or one for each time. All cells share 64 samples an epoch."""
    times_s = [epoch_s * factor for factor in NOISE] if isinstance(epoch_s, int | float) else epoch_s
    values = {"scaling": "strong", "devices_per_node": devices, "batch_size_per_device": 32 // devices}
    return repeats(a_trial(strategy=strategy, **values | changes), times_s)


def tables_of(*cells: list[Measured], ledger: Sequence[Entry] = (), **others: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """All that advice reads, of one experiment: `ledger` are predictions of the cells' training; `others` are tables in place of
    those that the cells make."""
    made = make_tables([item for launches in cells for item in launches])
    configurations = {trial.strategy: trial.configuration for launches in cells for trial, _, _ in launches}
    predictions = [replace(entry, configuration=configurations[entry.strategy]) for entry in ledger]
    known = Ledger(predictions, list(launches_of(made["timings"])))
    return {**made, "prediction": prediction_of("quickstart", known), **others}


def advice(tables: dict[str, pd.DataFrame], flops: Flops | None = None, **settings: Any) -> list[Sentence]:
    """What is advised, of which each sentence holds what all have to."""
    found = advise(tables, AdviceConfig(**settings), flops)
    for sentence in found:
        hold_to_its_form(sentence, tables)
    return found


CELL = re.compile(r"[\w-]+/\w+/\d+x\d+")
NO_TABLES = ("config.yaml", "flops.json")


def hold_to_its_form(sentence: Sentence, tables: Mapping[str, pd.DataFrame]) -> None:
    """Every cell that it names is in a row that it follows from, and that is there with its columns; what is withheld says what is
    missing and what to do; its text has no brackets in brackets, and nothing that is no number."""
    text = " ".join([sentence.verdict, sentence.why, *sentence.next_steps, sentence.missing, *sentence.warnings])
    rows = {row for evidence in sentence.follows_from for row in evidence.rows}
    assert {*CELL.findall(text)} <= rows, (text, rows)
    for evidence in sentence.follows_from:
        if evidence.file not in NO_TABLES:
            table = tables[evidence.file.removesuffix(".csv")]
            assert {*evidence.columns} <= {*table.columns}, evidence
            assert {*evidence.rows} <= {name_of(row) for row in table.itertuples()}, evidence
    assert not re.search(r"\([^()]*\(", text), text
    assert not re.search(r"\bnan\b|\(\)|-0\.0+ ", text), text
    if sentence.support != SHOWN:
        assert sentence.missing, text
        assert sentence.next_steps, text


def said(about: str, *cells: list[Measured], **settings: Any) -> Sentence:
    """The first sentence about something, of the tables that cells make."""
    return one(about, tables_of(*cells), **settings)


def one(about: str, tables: dict[str, pd.DataFrame], flops: Flops | None = None, **settings: Any) -> Sentence:
    """The first sentence about something, of these tables."""
    return next(sentence for sentence in advice(tables, flops, **settings) if sentence.about == about)


def explained(launches: int = 2, **controls: Any) -> list[Measured]:
    """Launches of ddp on two devices whose training steps take 49 ms, with blocks of steps under controls: a plain one takes 40 ms."""
    trials = [a_trial(explain=True, repeat=repeat) for repeat in range(launches)]
    found = [explained_record(trial, **controls) for trial in trials]
    return [(trial, record, {**steps, **_as_long_as(steps, 0.049)}) for trial, record, steps in found]


def _as_long_as(steps: Any, step_s: float) -> dict[str, Any]:
    return {name: steps[name] * 0 + step_s / 4 for name in steps if name.endswith("_s")}


CONTENDED = {"independent": a_step(ready=(20, 38)), "full": a_step(ready=(20, 38), exchanges=(0, 1))}


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


def predicted(devices: int, epoch_s: float) -> Entry:
    """An epoch of ddp on so many devices, within 5 %."""
    within = Interval(low=0.95 * epoch_s, high=1.05 * epoch_s)
    return an_entry(devices_per_node=devices, epoch_time_s=epoch_s, intervals={"80": within, "95": within})
