"""Tables -> what the page knows of each cell and each trial: columns, one value per cell or trial, None where there is none.

Nothing is computed here but where a point lies beside its neighbours.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from dpscale.explorer.marks import MARKS
from dpscale.figures.causes import PARTS
from dpscale.figures.drawing import GREY, Tables, cell_name, colours, is_placebo
from dpscale.figures.prediction import PARTS_MODEL

if TYPE_CHECKING:
    import pandas as pd

    from dpscale.config import FigureConfig

Columns = dict[str, list[Any]]
KEY = ["strategy", "launcher", "nodes", "devices_per_node"]
ESTIMATES = ("speedup", "scaling_efficiency", "epoch_time_s", "utilization_percent")
OF_SUMMARY = ["base", "precision", "devices", "status", "reason", "repeats", "repeats_planned", "spread"]
OF_SUMMARY += ["speedup_spread", "base_cell", "placebo_of", "peak_memory_MiB", "effective_precision", "warnings"]
OF_CAUSES = ["unexplained_because", "rounds", "step_s", "step_s_low", "step_s_high", *PARTS]
PREDICTED = ["predicted_epoch_time_s", "predicted_epoch_time_s_low", "predicted_epoch_time_s_high"]
OF_PREDICTION = [*PREDICTED, "calibrated_up_to", "calibrating", "verdict", "limited_by"]
OF_TIMINGS = ["repeat", "status", "reason", "epoch_time_s", "warnings"]
DIGITS = 6  # of a number, of which a screen shows three


def cells_of(tables: Tables) -> Columns:
    """A value per cell, in the order of the plan; then of those that are predicted and not planned."""
    import pandas as pd

    summary = tables["summary"]
    names = [*KEY, *OF_SUMMARY, *(f"{name}{end}" for name in ESTIMATES for end in ("", "_low", "_high"))]
    causes = tables["causes"][[*KEY, *OF_CAUSES]].rename(columns={"rounds": "cause_rounds"})
    predicted = _latest(tables["prediction"])
    cells = summary[names].merge(causes, how="left", on=KEY).merge(predicted[KEY + OF_PREDICTION], how="left", on=KEY)
    more = predicted[~_names(predicted).isin(_names(summary))]
    if len(more):
        precisions = dict(zip(summary.strategy, summary.precision, strict=True))
        beyond = more[[*KEY, "base", "devices", *OF_PREDICTION]].assign(
            precision=more.strategy.map(precisions), status="not planned", reason="it is predicted only", repeats=0
        )
        cells = pd.concat([cells, beyond], ignore_index=True)
    cells.insert(0, "cell", _names(cells))
    cells["topology"] = [f"{nodes}x{each}" for nodes, each in zip(cells.nodes, cells.devices_per_node, strict=True)]
    cells["place"] = _places(cells)
    return _columns(cells.drop(columns="devices_per_node"))


def _latest(prediction: pd.DataFrame) -> pd.DataFrame:
    """Of each topology the latest prediction from measured parts."""
    return prediction[(prediction.model == PARTS_MODEL) & prediction.current.astype(bool)]


def _names(cells: pd.DataFrame) -> pd.Series:
    import pandas as pd

    return pd.Series([cell_name(cell) for cell in cells.itertuples()], index=cells.index, dtype=object)


def _places(cells: pd.DataFrame) -> pd.Series:
    """Where along N a cell is drawn: a little beside it, so that the intervals of several lines don't hide each other."""
    lines = cells.groupby(["strategy", "launcher", "nodes"], sort=False).ngroup()
    count = lines.max() + 1
    apart = min(0.025, 0.2 / max(1, count))
    return cells.devices * (1 + apart * (lines - (count - 1) / 2))


def trials_of(tables: Tables) -> Columns:
    """A value per planned trial, and where its record lies, from the page's folder; `cell` is its cell's name."""
    timings, records = tables["timings"], tables["records"]
    found = records[[*KEY, "repeat", "record"]]
    trials = timings[[*KEY, *OF_TIMINGS]].merge(found, how="left", on=[*KEY, "repeat"])
    trials.insert(0, "cell", _names(trials))
    trials["record"] = trials.record.map(_beside, na_action="ignore")
    return _columns(trials.drop(columns=KEY))


def _beside(record: str) -> str:
    """A record's path below the results folder, from its experiment's folder."""
    return str(PurePosixPath(*PurePosixPath(record).parts[1:]))


def looks_of(summary: pd.DataFrame, settings: FigureConfig) -> dict[str, dict[str, str]]:
    """strategy -> its colour, as in the figures, and its mark, which tells it from others in grey."""
    from matplotlib.colors import to_hex

    own = list(dict.fromkeys(summary.strategy[~is_placebo(summary)]))
    colour_of = colours(own, settings)
    return {
        strategy: {"colour": to_hex(colour_of.get(strategy, GREY)), "mark": MARKS[index % len(MARKS)].name}
        for index, strategy in enumerate(dict.fromkeys(summary.strategy))
    }


def _columns(table: pd.DataFrame) -> Columns:
    rounded = table.apply(lambda column: column.map(_rounded) if column.dtype.kind == "f" else column)
    plain = rounded.astype(object)
    return {str(name): plain[name].where(plain[name].notna(), None).tolist() for name in plain}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
