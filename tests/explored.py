"""An experiment's folder with its page, of made-up trials: what the explorer is tested on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from factories import (
    a_single_trial,
    a_step,
    a_trial,
    an_unavailable_record,
    explained_record,
    repeats,
)

from dpscale.config import FigureConfig
from dpscale.explorer.page import TABLES, render
from dpscale.figures.drawing import Tables
from dpscale.record import RECORD
from dpscale.tables import make_tables, read_table
from dpscale.tables.schema import Measured, frame

EXPERIMENT = "quickstart"
RERUN = "snakemake --cores all --force -- results/quickstart/"
REASON = "needs CUDA devices: nn.DataParallel on a CPU trains on one device"
SINGLE, PAIR = a_single_trial(), a_trial(explain=True)
MEASURED: list[Measured] = [
    *repeats(SINGLE, [2.0, 2.2, 2.1]),
    explained_record(a_trial(devices_per_node=1, explain=True)),
    explained_record(PAIR, full=a_step(exchanges=(3, 24))),
    *repeats(a_trial(launcher="torchrun"), [2.6, 2.4, 2.5]),
    *repeats(a_trial(strategy="half", base="ddp", precision="bf16"), [1.6, 1.4, 1.5]),
    (a_trial(strategy="data_parallel"), an_unavailable_record(a_trial(strategy="data_parallel"), REASON), None),
    (a_trial(devices_per_node=4), None, None),
]
CELLS = ["single/spawn/1x1", "ddp/spawn/1x1", "ddp/spawn/1x2", "ddp/torchrun/1x2", "half/spawn/1x2"]
CELLS += ["data_parallel/spawn/1x2", "ddp/spawn/1x4", "ddp/spawn/1x8"]  # the last is predicted only


def a_prediction(devices: int, epoch_time_s: float, **changes: object) -> dict[str, object]:
    row = {"experiment": EXPERIMENT, "strategy": "ddp", "base": "ddp", "launcher": "spawn", "nodes": 1}
    row |= {"devices_per_node": devices, "devices": devices, "model": "measured parts", "current": True}
    row |= {"predicted_epoch_time_s": epoch_time_s, "predicted_epoch_time_s_low": 0.9 * epoch_time_s}
    row |= {"predicted_epoch_time_s_high": 1.1 * epoch_time_s, "calibrated_up_to": 2, "calibrating": devices <= 2}
    return row | {"verdict": "not measured yet", "limited_by": "contention"} | changes


PREDICTED = [a_prediction(2, 2.3, verdict="calibrated from"), a_prediction(4, 2.6), a_prediction(8, 3.1)]


def tables_of(rows: list[Measured], predicted: list[dict[str, object]] | None = None) -> Tables:
    """As explore.py gets them: written and read again."""
    with TemporaryDirectory() as folder:
        apart = {"prediction": frame("prediction", predicted or [])}
        for name, table in {**make_tables(rows), **apart}.items():
            table.to_csv(Path(folder, f"{name}.csv"), index=False)
        return {name: read_table(Path(folder), name) for name in TABLES}


@dataclass(frozen=True)
class Explored:
    """The experiment's folder, and its page in it."""

    folder: Path

    @property
    def page(self) -> Path:
        return self.folder / "explore.html"

    @classmethod
    def made(cls, folder: Path) -> Explored:
        """The page among the records and logs that it leads to."""
        explored = cls(folder)
        folder.mkdir(parents=True)
        tables = tables_of(MEASURED, PREDICTED)
        explored.page.write_text(render(EXPERIMENT, tables, FigureConfig(), RERUN, "records.csv sha256:0123"))
        for record in tables["records"].record.dropna():
            path = folder.parent / record
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps({"record": record}))
            path.with_name("trial.log").write_text(f"log of {record}\n")
        assert (folder / "trials/ddp/spawn/1x2/r0" / RECORD).exists()
        return explored


def cell(tables: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of a cell in a table."""
    strategy, launcher, topology = name.split("/")
    nodes, each = map(int, topology.split("x"))
    keys = (tables.strategy == strategy) & (tables.launcher == launcher)
    return tables[keys & (tables.nodes == nodes) & (tables.devices_per_node == each)]
