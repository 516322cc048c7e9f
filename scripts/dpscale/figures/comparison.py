"""Every cell of an experiment side by side: what each way to train costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpscale.config import FigureConfig
from dpscale.figures.drawing import GREY, Tables, cell_name, colours, foot, is_placebo, rounded

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def comparison(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """Three panels that share their rows: one bar per cell."""
    from matplotlib.patheffects import withStroke

    summary = tables["summary"].reset_index(drop=True)
    figure.set_figheight(max(figure.get_figheight(), (0.22 * len(summary) + 1.6) * settings.font_size_pt / 9))
    cuda = "cuda" in set(summary.device)
    memory = "peak_reserved_MiB" if cuda else "peak_memory_MiB"
    panels = [
        ("epoch_time_s", "epoch time in s\n(training)"),
        ("utilization_percent", "utilisation in %\n" + ("(time with any kernel)" if cuda else "(CPU time / allotted)")),
        (memory, "peak memory in MiB\n" + ("(torch's allocator, per rank)" if cuda else "(resident, per rank)")),
    ]
    colour_of = colours(list(dict.fromkeys(summary.strategy[~is_placebo(summary)])), settings)
    several = summary.precision.nunique() > 1
    labels = [cell_name(cell) + (f", {cell.precision}" if several else "") for cell in summary.itertuples()]
    all_axes = figure.subplots(1, len(panels), sharey=True)
    for axes, (column, title) in zip(all_axes, panels, strict=True):
        for row, cell in summary.iterrows():
            value = cell[column]
            if value != value:  # NaN: there is none
                axes.text(
                    0,
                    row,
                    f" {cell.status if cell.status != 'ok' else 'not measured'}",
                    va="center",
                    color=GREY,
                    style="italic",
                )
                continue
            error = [[value - cell[f"{column}_low"]], [cell[f"{column}_high"] - value]]
            axes.barh(
                row, value, xerr=error, color=colour_of.get(cell.strategy, GREY), capsize=2, height=0.7, ecolor="0.2"
            )
            axes.annotate(  # at the bar's root, where no error bar can hide it; haloed, as it may be longer than the bar
                rounded(value),
                (0, row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color="0.1",
                path_effects=[withStroke(linewidth=2, foreground="white")],
            )
        axes.set_title(title, fontsize=settings.font_size_pt)
        axes.grid(axis="y", visible=False)
        axes.set_xlim(0, None)
    all_axes[0].set_yticks(range(len(labels)), labels)
    all_axes[0].set_ylim(len(labels) - 0.5, -0.5)  # a row without bars has its place too
    foot(figure, summary, settings)
