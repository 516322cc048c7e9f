"""Made-up results that figures are drawn of, and what is read in a figure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from factories import (
    a_single_trial,
    a_step,
    a_trial,
    an_unavailable_record,
    explained_record,
    measured,
    rank_facts,
    repeats,
    samples_of,
)

from dpscale.config import FigureConfig
from dpscale.figures import FIGURES, make_figure, render
from dpscale.figures.drawing import caption_of
from dpscale.tables import make_tables, read_table
from dpscale.tables.collectives import make_table
from dpscale.tables.schema import TABLES, Measured, frame

SINGLE, DDP = a_single_trial(), a_trial()
REASON = "needs CUDA devices: nn.DataParallel on a CPU trains on one device"
DATA_PARALLEL = a_trial(strategy="data_parallel")


def unavailable(trial=DATA_PARALLEL, reason: str = REASON) -> list[Measured]:
    return [(trial, an_unavailable_record(trial, reason), None)]


def missing(trial) -> list[Measured]:
    return [(trial, None, None)]


def on(devices: int, **changes):
    return a_trial(devices_per_node=devices, **changes)


NORMAL = [*repeats(SINGLE, [2.0, 2.2, 2.1]), *repeats(on(1), [2.1, 2.0, 2.3]), *repeats(DDP, [2.6, 2.4, 2.5])]
LATE = [a_step(exchanges=(3, 24)), a_step(backward=20, exchanges=(3, 4))]  # the second rank of each node
EXPLAINED = [
    *repeats(SINGLE, [2.0]),
    explained_record(on(1, explain=True)),
    explained_record(on(2, explain=True), full=LATE),
    explained_record(
        on(2, nodes=2, launcher="torchrun", explain=True),
        ranks=[rank_facts(rank, node=f"node{rank // 2}") for rank in range(4)],
        full=LATE * 2,
    ),
]
ROWS: dict[str, list[Measured]] = {
    "normal": NORMAL,
    "explained": EXPLAINED,
    "unavailable and missing": [*NORMAL, *unavailable(), *missing(on(4))],
    "nothing measured": [*missing(SINGLE), *unavailable()],
    "one cell": repeats(SINGLE, [2.0]),
    "no evaluation": [measured(replace(SINGLE, evaluate=False)), measured(replace(DDP, evaluate=False))],
    "no base": repeats(DDP, [2.0, 2.1]),
    "twelve strategies": [
        *NORMAL,
        *(item for i in range(12) for item in repeats(on(2, strategy=f"ddp_{i}"), [2.0 + i])),
    ],
    "long reason": [*NORMAL, *unavailable(reason="needs " + "a very long explanation of what is not there " * 12)],
    "many reasons": [
        *NORMAL,
        *(item for i in range(9) for item in unavailable(on(2, strategy=f"mine_{i}"), f"reason {i}")),
    ],
    "several nodes and launchers": [
        *NORMAL,
        *repeats(on(2, launcher="torchrun"), [2.5]),
        *repeats(on(2, nodes=2, launcher="torchrun"), [2.7]),
    ],
    "on cuda": [
        measured(replace(trial, device="cuda", backend="nccl")) for trial in (SINGLE, DDP)
    ],  # without utilisation or allocator figures
}


OF_TRIALS = [name for name, row in FIGURES.items() if "summary" in row.tables]


def tables_of(rows: list[Measured]) -> dict[str, pd.DataFrame]:
    """As plot.py gets them: written and read again."""
    samples = {trial.id: samples_of(record) for trial, record, _ in rows if record and record.status == "ok"}
    with TemporaryDirectory() as folder:
        apart = {"collectives": make_table([]), "prediction": frame("prediction", []), "advice": frame("advice", [])}
        for name, table in {**make_tables(rows, samples=samples), **apart}.items():
            table.to_csv(Path(folder, f"{name}.csv"), index=False)
        return {name: read_table(Path(folder), name) for name in TABLES}


def svg_of(name: str, rows: list[Measured], settings: FigureConfig | None = None) -> str:
    return render(name, tables_of(rows), settings or FigureConfig(), ["svg"])["svg"].decode()


def words(svg: str) -> str:
    """All text of a figure, without line breaks."""
    return " ".join(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg)).split())


def caption(name: str, rows: list[Measured]) -> str:
    return caption_of(make_figure(name, tables_of(rows), FigureConfig()))
