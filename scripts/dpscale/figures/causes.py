"""Where a step's time goes, stacked over N and over ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    MM_PER_INCH,
    Tables,
    cell_name,
    foot,
    held,
    is_narrow,
    left_out,
    legend_of_panels,
    reach_of,
    rounded,
    series,
    wrapped,
)
from dpscale.figures.parts import part_looks
from dpscale.trust import FLAG_BESIDE_TRAINING_ABOVE_PERCENT
from dpscale.words import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = {  # columns of the tables, from below -> their name in the legend
    "compute_s": "compute on one",
    "data_wait_s": "data wait",
    "wrapper_s": "wrapper",
    "contention_s": "contention",
    "buffers_s": "buffers",
    "stretch_s": "stretch by the exchange",
    "transfer_s": "exposed transfer",
    "waiting_s": "waiting for ranks",
    "unexplained_s": "unexplained",
}
MS = 1000
LOW_PANEL_INCHES = 1.3  # what a panel needs at least, with its title and numbers
TITLE_LETTERS = 22  # of a panel's, on one line


def causes(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A panel for each strategy and launcher on a number of nodes, a bar for each N."""
    explained = tables["causes"][tables["causes"].step_s.notna()]
    panels = [(label, cells) for label, cells in series(_with(explained, tables["summary"]))]
    columns = [(label, [str(n) for n in cells.devices], cells) for label, cells in panels]
    more = left_out(_stacks(figure, columns, "devices N", settings), "panel", "causes.csv")
    foot(figure, tables["summary"], settings, _drawn(explained), [*more, *_notes(tables["causes"])])


def causes_by_rank(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A panel for each cell of more than one rank, a bar for each rank."""
    ranks = tables["stragglers"]
    groups = ranks.groupby(["strategy", "launcher", "nodes", "devices_per_node"], sort=False)
    columns = [(cell_name(next(cell.itertuples())), [str(rank) for rank in cell["rank"]], cell) for _, cell in groups]
    notes = left_out(_stacks(figure, columns, "rank", settings), "cell", "stragglers.csv")
    notes += [] if len(ranks) else ["No explained cell has more than one rank."]
    foot(figure, tables["summary"], settings, _drawn(ranks), notes + list(_notes(tables["causes"])))


def _with(explained: pd.DataFrame, summary: pd.DataFrame) -> pd.DataFrame:
    """Explained cells with what `series` asks of a summary."""
    return explained.merge(summary[["strategy", "launcher", "nodes", "devices_per_node", "precision", "placebo_of"]])


def _stacks(
    figure: Figure, panels: list[tuple[str, list[str], pd.DataFrame]], label: str, settings: FigureConfig
) -> int:
    """Panels side by side with one axis of time, and one legend.

    Returns:
        how many panels there is no room for.
    """
    if not panels:
        nothing(figure.subplots())
        return 0
    columns = min(2 if is_narrow(settings) else 3, len(panels))
    rows = held(figure, -(-len(panels) // columns), LOW_PANEL_INCHES, other_inches=1.2)
    beyond, panels = len(panels) - rows * columns, panels[: rows * columns]
    figure.set_figheight(figure.get_figheight() * max(1.0, 0.6 * rows))
    all_axes = figure.subplots(rows, columns, squeeze=False, sharey=True).flatten()
    for axes, (title, names, cells) in zip(all_axes, panels, strict=False):
        _stack(axes, names, cells, settings)
        axes.set_title(wrapped(title, TITLE_LETTERS), fontsize=settings.font_size_pt)
        axes.set_xlabel(label)
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    for axes in all_axes[::columns]:
        axes.set_ylabel("time per step in ms")
    handles = {
        name: handle for axes in all_axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = [name for name in ["whole step", *list(PARTS.values())[::-1]] if name in handles]
    legend_of_panels(figure, [handles[name] for name in order], order)
    return max(0, beyond)


def _stack(axes: Axes, names: list[str], cells: pd.DataFrame, settings: FigureConfig) -> None:
    """A bar for each row: its parts on each other, those below zero hanging from it; the whole step with its interval."""
    import numpy as np

    looks = part_looks(settings)
    places = np.arange(len(cells))
    above, below = np.zeros(len(cells)), np.zeros(len(cells))
    for part, name in PARTS.items():
        if cells[part].isna().all():  # the model has no buffers
            continue
        values = MS * cells[part].fillna(0.0).to_numpy(float)
        axes.bar(places, values, bottom=np.where(values < 0, below, above), width=0.7, label=name, **looks[part])
        above, below = above + np.maximum(values, 0), below + np.minimum(values, 0)
    whole = MS * cells.step_s.to_numpy(float)
    errors = [whole - MS * cells.step_s_low.to_numpy(float), MS * cells.step_s_high.to_numpy(float) - whole]
    axes.errorbar(places, whole, yerr=errors, fmt="D", color="0.1", capsize=3, markersize=4, label="whole step")
    axes.axhline(0, color=GREY, linewidth=0.8)
    step = _apart(names, settings)
    axes.set_xticks(places[::step], names[::step])
    axes.grid(axis="x", visible=False)
    axes.use_sticky_edges = False  # room above the bars
    axes.autoscale_view()


def _apart(names: list[str], settings: FigureConfig) -> int:
    """Of every how many bars in a panel there is room for a name."""
    across_pt = settings.width_mm / MM_PER_INCH * 72 * (0.36 if is_narrow(settings) else 0.2)
    return max(1, math.ceil(0.7 * settings.font_size_pt * sum(len(name) + 1 for name in names) / across_pt))


def nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)
    axes.set_axis_off()


def _drawn(shown: pd.DataFrame) -> str:
    """What the stacks are: of rounds within launches, not of launches; empty where there are none."""
    if shown.empty:
        return ""
    whole = reach_of(shown.spread, "whiskers")
    return f"Bars: parts, each the median over {rounds_of(shown)}. Diamonds: the whole step; {whole}."


def rounds_of(shown: pd.DataFrame) -> str:
    """What medians of causes and delays are over."""
    least, most = int(shown.rounds.min()), int(shown.rounds.max())
    return f"{counted(most, 'round') if least == most else f'{least}-{most} rounds'} of blocks of steps"


def _notes(causes: pd.DataFrame) -> Iterator[str]:
    """How much is unexplained, and what has no causes."""
    explained = causes[causes.step_s.notna()]
    if len(explained):
        (worst,) = explained.nlargest(1, "unexplained_percent").itertuples()
        share = rounded(float(str(worst.unexplained_percent)))
        yield f"Unexplained: at most {share} % of the step ({cell_name(worst)})."
    apart = explained[explained.beside_training_percent.abs() > FLAG_BESIDE_TRAINING_ABOVE_PERCENT]
    for cell, step_ms, training_ms in zip(
        apart.itertuples(), MS * apart.step_s, MS * apart.training_step_s, strict=True
    ):
        yield (
            f"Warning: {cell_name(cell)}: a step under controls took {step_ms:.1f} ms and one of the training "
            f"{training_ms:.1f}, so its causes are not the training's."
        )
    for reason, cells in causes[causes.unexplained_because.notna()].groupby("unexplained_because", sort=False):
        names = ", ".join(cell_name(cell) for cell in cells.itertuples())
        yield f"Without causes: {names} ({reason})"
