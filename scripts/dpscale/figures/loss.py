"""Learning curves: whether strategies learn the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpscale.config import FigureConfig
from dpscale.figures.drawing import Tables, foot, legend, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def loss(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    import seaborn as sns

    losses, summary = tables["losses"], tables["summary"]
    axes = figure.subplots()
    for label, cells, style in styles(summary, settings):
        for cell in cells.itertuples():
            mine = losses[
                (losses.strategy == cell.strategy)
                & (losses.launcher == cell.launcher)
                & (losses.nodes == cell.nodes)
                & (losses.devices_per_node == cell.devices_per_node)
            ]
            if len(mine):
                widths = {1: 1.8, 2: 1.2}
                sns.lineplot(
                    mine,
                    x="samples_seen",
                    y="loss",
                    estimator="median",
                    errorbar=("pi", 100),
                    err_kws={"alpha": 0.12},
                    ax=axes,
                    color=style["color"],
                    linestyle=style["linestyle"],
                    linewidth=widths.get(int(str(cell.devices)), 0.9),
                    label=f"{label}, N={cell.devices}",
                )
    axes.set_xlabel("training samples seen, over all ranks")
    axes.set_ylabel("training loss (mean of a global batch)")
    legend(axes)
    foot(figure, summary, settings)
