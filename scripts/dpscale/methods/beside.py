"""What was measured and predicted beside the times of training, as far as it was: a plan alone says nothing here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpscale.methods.study import Study, different
from dpscale.tables.cells import name_of
from dpscale.tables.prediction import PARTS_MODEL
from dpscale.words import counted, listed

if TYPE_CHECKING:
    import pandas as pd


def beside(study: Study) -> Iterator[str]:
    yield from _explained(study)
    yield from _collectives(study)
    yield from _predictions(study)


def _explained(study: Study) -> Iterator[str]:
    if names := different(record.trial.strategy for record in study.measured if record.explained is not None):
        yield (
            f"After each training of {listed(names)} the same launch went on with blocks of steps under controls (one rank alone, "
            "without and within DDP; all ranks, without and with the exchange; a batch that stays on the device), in a random order "
            "that all ranks share; the time of a step is split into causes from their stamps."
        )


def _collectives(study: Study) -> Iterator[str]:
    table = study.tables["collectives"]
    good = table[table.status == "ok"]
    if good.empty:
        return
    asked = study.settings.collectives
    yield (
        f"Collectives were timed alone ({listed(different(good.operation))}; {listed(different(good.dtype))}; {asked.sizes}), in "
        f"at most {counted(asked.blocks, 'block')} of calls of each size, each as long as its slowest rank; their results were "
        "compared with what they must be. Bus bandwidth is as nccl-tests defines it."
    )


def _predictions(study: Study) -> Iterator[str]:
    """As the ledger has them: which were written in advance, the table says, and the configuration can't."""
    table = study.tables["prediction"]
    predicted = table[(table.model == PARTS_MODEL) & table.current.eq(True) & ~table.calibrating.eq(True)]
    if predicted.empty:
        return
    up_to = listed(different(predicted.calibrated_up_to))
    yield (
        f"Epoch times on more devices were predicted from launches on at most {up_to}; the exchange was calibrated from "
        f"{study.settings.prediction.exchanges}."
    )
    measured = predicted[predicted.launches > 0]
    if names := _names(measured[measured.in_advance.eq(True)]):
        yield f"Written down before the launches that they are held against began: the predictions of {names}."
    if names := _names(measured[measured.in_advance.eq(False)]):
        yield f"Written down after these had begun, and so a check of the model and no prediction: those of {names}."
    if names := _names(predicted[predicted.launches == 0]):
        yield f"Held against no launch: those of {names}."


def _names(rows: pd.DataFrame) -> str:
    return listed(name_of(row) for row in rows.itertuples())
