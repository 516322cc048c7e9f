"""How much of a step stays unexplained: the tutorials' ConvNet on Fashion-MNIST under DDP, on 1, 2 and 4 processes.

The goal is issue 6's, for a machine with nobody else on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from common import SOURCE, Comparison, NotHere, Settings, launch, plan_one, prepare

from dpscale.record import Record, read_steps
from dpscale.tables.causes import causes_of_cells

TOPOLOGIES = ("1x1", "1x2", "1x4")
MOST_UNEXPLAINED = 0.1  # of a step


def run(settings: Settings) -> Iterator[Comparison]:
    if not SOURCE.is_dir():
        raise NotHere(f"{SOURCE} is not there; Debian: apt install dataset-fashion-mnist")
    data = prepare("fashion_mnist", settings.folder, source=str(SOURCE))
    for topology in TOPOLOGIES if settings.pairs > 1 else TOPOLOGIES[:1]:
        yield unexplained(settings, data, topology)


def unexplained(settings: Settings, data: Path, topology: str) -> Comparison:
    """One launch after the other: each is a pair."""
    trial = plan_one(
        workload={"model": "convnet", "dataset": "fashion_mnist", "optimizer": {"name": "adadelta", "lr": 0.5}},
        strategies={"ddp": {}},
        topologies=[topology],
        batch={"per_device": 64},
        steps=settings.steps + 1,
        warmup_steps=1,
        evaluate=False,
        explain=True,
    )
    rows = []
    for number in range(settings.pairs):
        path = launch(trial, data, settings.folder / topology / str(number))
        table = read_steps(path)
        steps = {name: table[name].to_numpy() for name in table.column_names}
        rows += causes_of_cells([(trial, Record.read(path), steps)])
    return Comparison(
        name=f"ConvNet, ddp {topology}: unexplained / whole step",
        first="unexplained, s per step",
        second="whole step, s",
        pairs=[(abs(row["unexplained_s"]), row["step_s"]) for row in rows],
        goal=MOST_UNEXPLAINED,
        goal_is="at most",
        facts={"trial": trial.to_args(), "rows": rows},
    )
