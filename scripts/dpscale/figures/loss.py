"""Learning curves: whether strategies learn the same.

Thousands of losses of single batches would hide every other curve behind their noise, so a point is the mean of as many
successive steps as leave POINTS of them to a curve.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpscale.config import FigureConfig
from dpscale.figures.drawing import MARKERS, Tables, foot, is_narrow, legend, medians_of_launches, styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

POINTS = 60  # of a curve, at most
MARKED = 6  # of these with a marker, which tells the curves of one strategy apart
CELL = ["strategy", "launcher", "nodes", "devices_per_node"]
WIDTHS = {1: 1.8, 2: 1.2}  # devices -> width of the line: the few stay visible below the many


def loss(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    import seaborn as sns

    losses, summary = tables["losses"], tables["summary"]
    axes = figure.subplots()
    most = 1
    curves = [(label, cell, style) for label, cells, style in styles(summary, settings) for cell in cells.itertuples()]
    for number, (label, cell, style) in enumerate(curves):
        mine = losses[(losses[CELL] == [getattr(cell, name) for name in CELL]).all(axis=1)]
        if mine.empty:
            continue
        together = steps_of_a_point(mine)
        most = max(most, together)
        points = in_points(mine, together)
        every = max(1, len(points) // mine.repeat.nunique() // MARKED)
        sns.lineplot(
            points,
            x="samples_seen",
            y="loss",
            estimator="median",
            errorbar=("pi", 100),
            err_kws={"alpha": 0.12},
            ax=axes,
            color=style["color"],
            linestyle=style["linestyle"],
            marker=MARKERS[number % len(MARKERS)],
            markersize=4,
            markevery=(number % every, every),
            linewidth=WIDTHS.get(int(str(cell.devices)), 0.9),
            label=f"{label}, N={cell.devices}",
        )
    if is_narrow(settings):
        axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("training samples seen, over all ranks")
    axes.set_ylabel("training loss (mean of a global batch)")
    legend(axes)
    notes = [f"A point of a curve is the mean of up to {most} successive steps."] if most > 1 else []
    foot(figure, summary, settings, medians_of_launches(summary, "Curves", "bands", spread=None), notes)


def steps_of_a_point(losses: pd.DataFrame) -> int:
    """How many successive steps of a cell are drawn as one."""
    return math.ceil(losses.step.nunique() / POINTS)


def in_points(losses: pd.DataFrame, together: int) -> pd.DataFrame:
    """Losses of a cell, each the mean of so many successive steps of a launch, at the mean of their samples."""
    return losses.groupby(["repeat", losses.step // together])[["samples_seen", "loss"]].mean()
