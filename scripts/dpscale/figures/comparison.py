"""Every cell of an experiment side by side: what each way to train costs.

For print it has a layout of its own: the three panels stay side by side in one column, too, so rows have short names and
are as low as can be read, and what the panels measure in full is in the caption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    NAME_LETTERS,
    Tables,
    cell_name,
    colours,
    foot,
    held,
    in_print,
    is_narrow,
    is_placebo,
    left_out,
    lines_of,
    medians_of_launches,
    rounded,
    smaller,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PITCH_INCHES = 0.155  # from one row to the next in print, of text of 7 pt
LOW_PITCH_INCHES = 0.115  # where there are so many that a page has no room for them
MANY = 30
NARROW_LETTERS = 20  # of a name on one line of a narrow figure for a screen
ROOM_INCHES = 0.55  # for titles, and numbers at the axes, of text of 7 pt
ROOM_SHARE = {True: 0.45, False: 0.17}  # whether it is narrow -> of a panel's width, for the number of five digits


@dataclass(frozen=True)
class Panel:
    """One quantity of all cells."""

    column: str
    title: str
    short: str  # its title in print, and in a narrow figure
    meaning: str  # what it is, where the title in print says less


def comparison(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """Three panels that share their rows: one bar per cell."""
    everything = tables["summary"].reset_index(drop=True)
    panels = _panels("cuda" in set(everything.device))
    narrow = is_narrow(settings)
    compact = in_print(figure) or narrow
    letters = NARROW_LETTERS if narrow and not in_print(figure) else NAME_LETTERS
    labels = [wrapped(name, letters) for name in (_short_names if compact else _names)(everything)]
    pitch_inches = (LOW_PITCH_INCHES if len(labels) > MANY else PITCH_INCHES) * lines_of(labels)
    scale = settings.font_size_pt / 7
    summary = everything[: held(figure, len(labels), pitch_inches * scale, ROOM_INCHES * scale)]
    labels = labels[: len(summary)]
    if in_print(figure):
        figure.set_figheight((pitch_inches * len(summary) + ROOM_INCHES) * scale)
    else:
        figure.set_figheight(
            max(figure.get_figheight(), (0.22 * lines_of(labels) * len(summary) + 1.6) * settings.font_size_pt / 9)
        )
    size_pt = smaller(settings, 1) if compact else settings.font_size_pt
    colour_of = colours(list(dict.fromkeys(summary.strategy[~is_placebo(summary)])), settings)
    all_axes = figure.subplots(1, len(panels), sharey=True)
    for axes, panel in zip(all_axes, panels, strict=True):
        for row, cell in enumerate(summary.to_dict("records")):
            if (value := cell[panel.column]) != value:  # NaN: there is none
                text = f" {cell['status'] if cell['status'] != 'ok' else 'not measured'}"
                axes.text(0, row, text, va="center", color=GREY, style="italic", fontsize=size_pt)
                continue
            error = [[value - cell[f"{panel.column}_low"]], [cell[f"{panel.column}_high"] - value]]
            colour = colour_of.get(cell["strategy"], GREY)
            axes.barh(row, value, xerr=error, color=colour, capsize=2, height=0.7, ecolor="0.2")
            (_number_at_end if compact else _number_at_root)(axes, row, value, size_pt)
        short = panel.short.replace(" in ", "\nin ") if narrow else panel.short
        axes.set_title(short if compact else panel.title, fontsize=size_pt)
        axes.grid(axis="y", visible=False)
        axes.set_xlim(0, None)
        longest = summary[f"{panel.column}_high"].max()
        if compact and longest == longest:
            axes.set_xlim(0, longest / (1 - ROOM_SHARE[narrow]))
    all_axes[0].set_yticks(range(len(labels)), labels, fontsize=size_pt)
    all_axes[0].set_ylim(len(labels) - 0.5, -0.5)  # a row without bars has its place too
    if compact:
        _few_ticks(all_axes, size_pt, narrow)
    drawn = medians_of_launches(summary, "Bars", "whiskers")
    notes = [f"{panel.short}: {panel.meaning}." for panel in panels if compact]
    notes += left_out(len(everything) - len(summary), "cell", "summary.csv")
    foot(figure, everything, settings, drawn, notes)


def _panels(cuda: bool) -> list[Panel]:
    time = Panel("epoch_time_s", "epoch time in s\n(training)", "epoch time in s", "of training alone")
    if cuda:
        title, meaning = "(time with any kernel)", "share of time in which any kernel ran, by NVML"
        busy = Panel("utilization_percent", f"utilisation in %\n{title}", "utilisation in %", meaning)
        title, meaning = (
            "(torch's allocator,\nper rank)",
            "most that torch's allocator held, of the rank that held most",
        )
        return [time, busy, Panel("peak_reserved_MiB", f"peak memory in MiB\n{title}", "memory in MiB", meaning)]
    title, meaning = "(CPU time / allotted)", "CPU time of the ranks over what their threads could have used"
    busy = Panel("utilization_percent", f"utilisation in %\n{title}", "utilisation in %", meaning)
    title, meaning = "(resident, per rank)", "largest resident set of any rank"
    return [time, busy, Panel("peak_memory_MiB", f"peak memory in MiB\n{title}", "memory in MiB", meaning)]


def _number_at_root(axes: Axes, row: int, value: float, size_pt: float) -> None:
    """Where no error bar can hide it; haloed, as it may be longer than the bar."""
    from matplotlib.patheffects import withStroke

    axes.annotate(
        rounded(value),
        (0, row),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color="0.1",
        fontsize=size_pt,
        path_effects=[withStroke(linewidth=2, foreground="white")],
    )


def _number_at_end(axes: Axes, row: int, value: float, size_pt: float) -> None:
    """In a column of its own beyond the longest bar and its error bar, for small panels have no other room."""
    across = axes.get_yaxis_transform()
    axes.annotate(rounded(value), (1, row), xycoords=across, ha="right", va="center", fontsize=size_pt)


def _names(summary: pd.DataFrame) -> Iterator[str]:
    several = summary.precision.nunique() > 1
    for cell in summary.itertuples():
        yield cell_name(cell) + (f", {cell.precision}" if several else "")


def _short_names(summary: pd.DataFrame) -> Iterator[str]:
    """Without what all rows share."""
    launchers, precisions = summary.launcher.nunique() > 1, summary.precision.nunique() > 1
    for cell in summary.itertuples():
        started = f" {cell.launcher}" if launchers else ""
        computed = f" {cell.precision}" if precisions else ""
        yield f"{cell.strategy}{started} {cell.nodes}x{cell.devices_per_node}{computed}"


def _few_ticks(all_axes: Iterable[Axes], size_pt: float, narrow: bool) -> None:
    """So few that numbers of two panels don't meet."""
    from matplotlib.ticker import MaxNLocator

    for axes in all_axes:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=2 if narrow else 5, min_n_ticks=2))
        axes.tick_params(axis="x", labelsize=size_pt)
