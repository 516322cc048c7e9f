"""The only table schema: name of a table -> its columns, and what each means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpscale import metrics
from dpscale.record import Record
from dpscale.tables.schema import causes, cells, collectives, comparing, monitor, outlook, trials
from dpscale.tables.schema.causes import CAUSES_OF_CELLS, STRAGGLERS
from dpscale.tables.schema.cells import IDENTITY
from dpscale.tables.schema.collectives import COLLECTIVES
from dpscale.tables.schema.comparing import CHANGES, COMPARISONS, ENVIRONMENT_CHANGES, PUBLISHED
from dpscale.tables.schema.monitor import MONITOR, TIMELINE
from dpscale.tables.schema.outlook import ADVICE, PREDICTION
from dpscale.tables.schema.trials import EVALUATIONS, LOSSES, RECORDS, STARTUP, SUMMARY, TIMINGS
from dpscale.trial import Trial

if TYPE_CHECKING:  # imported where tables are made: Snakemake reads TABLES at every start
    import pandas as pd

PARTS = (cells, trials, comparing, collectives, monitor, causes, outlook)
Measured = tuple[Trial, Record | None, metrics.Steps | None]  # a planned trial, and what there is of it

OF_TWO_SETS = {"changes": CHANGES, "environment_changes": ENVIRONMENT_CHANGES}  # of no experiment: see compare.py
TABLES = {
    "timings": TIMINGS,
    "summary": SUMMARY,
    "comparisons": COMPARISONS,
    "losses": LOSSES,
    "evaluations": EVALUATIONS,
    "causes": CAUSES_OF_CELLS,
    "stragglers": STRAGGLERS,
    "monitor": MONITOR,
    "timeline": TIMELINE,
    "startup": STARTUP,
    "records": RECORDS,
    "collectives": COLLECTIVES,
    "published": PUBLISHED,
    "prediction": PREDICTION,
    "advice": ADVICE,
}
MADE_APART = {"collectives", "prediction", "advice"}  # not from the records of trials
WHOLE_NUMBERS = {"batch_size_per_device", "global_batch_size", "rank", "samples", "other_processes", "rounds"}
WHOLE_NUMBERS |= {"launches", "launches_inside", "repeats_needed"}
TEXTS = set[str]().union(*(part.TEXTS for part in PARTS))  # the other columns are numbers


def frame(table: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    columns = (TABLES | OF_TWO_SETS)[table]
    unknown = {name for row in rows for name in row} - columns.keys()
    assert not unknown, f"columns {unknown} are not those of the table {table!r}"
    frame = pd.DataFrame(rows, columns=list(columns))
    found = {column: "Int64" for column in WHOLE_NUMBERS if column in frame}
    return frame.astype(found)  # whole numbers, also beside empty ones


def identity(trial: Trial, names: Sequence[str] = tuple(IDENTITY)) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in names}
