"""How busy devices are: over N, each of them, and over time; and how long they take to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    LINES,
    NAME_LETTERS,
    Tables,
    cell_name,
    colours,
    foot,
    held,
    is_narrow,
    is_placebo,
    label_x,
    left_out,
    legend,
    legend_of_panels,
    lines_of,
    medians_of_launches,
    over_devices,
    smaller,
    worded,
    wrapped,
)
from dpscale.phases import STARTUP_PARTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STARTUP = "Bars: parts one after another, of each the median over ranks and launches; they are in no other result."
PANELS = 6  # cells of the figure over time
TIMELINE = "Lines: samples of one launch of each strategy, on most devices. Before 0 ranks were starting."
MOST_NAMED_LINES = 16  # in the legend of the figure over time
NAMED = 40  # devices that have room for a name each


def utilization(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    summary = tables["summary"]
    axes = figure.subplots()
    over_devices(axes, summary, "utilization_percent", settings)
    axes.set_ylabel(f"utilisation in %\n({_meaning(summary)})")
    axes.set_ylim(0, None)
    legend(axes)
    foot(figure, summary, settings, medians_of_launches(summary))


def devices(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A bar per device of each cell: the median of its repeats, and their range."""
    summary, monitor = tables["summary"], tables["monitor"]
    axes = figure.subplots()
    colour_of = colours(list(dict.fromkeys(summary.strategy[~is_placebo(summary)])), settings)
    ticks: list[float] = []
    names: list[str] = []
    row = 0.0
    for cell in summary.itertuples():
        mine = _of_cell(monitor, cell, _kind(cell))
        for (node, name), repeats in mine.groupby(["node", "name"], sort=False):
            known = repeats.utilization_percent.dropna()
            if len(known):
                middle = known.median()
                error = [[middle - known.min()], [known.max() - middle]]
                colour = colour_of.get(str(cell.strategy), GREY)
                axes.barh(row, middle, xerr=error, color=colour, height=0.8, ecolor="0.2", capsize=2)
            else:
                axes.text(0, row, " not measured", va="center", color=GREY, style="italic")
            ticks.append(row)
            names.append(wrapped(f"{cell_name(cell)}: {_device(cell, node, str(name), repeats)}", NAME_LETTERS + 8))
            row += 1
        row += 0 if mine.empty else 0.6
    figure.set_figheight(
        max(figure.get_figheight(), min(30, 0.17 * lines_of(names) * len(ticks) + 1.6) * settings.font_size_pt / 9)
    )
    if ticks:
        name_inches = 1.3 * smaller(settings, 2) * lines_of(names) / 72
        step = -(-len(ticks) // min(NAMED, held(figure, NAMED, name_inches, other_inches=0.9)))
        axes.set_yticks(ticks[::step], names[::step], fontsize=smaller(settings, 2))
        axes.set_ylim(row, -1)
        axes.set_xlim(0, None)
    else:
        legend(axes)
    label_x(axes, f"utilisation in % ({_meaning(summary)})", settings)
    axes.grid(axis="y", visible=False)
    foot(figure, summary, settings, medians_of_launches(summary, "Bars", "whiskers", spread=None))


def timeline(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A panel per strategy, of its cell with the most devices; a line per device."""
    summary, lines = tables["summary"], tables["timeline"]
    most = summary.sort_values("devices", ascending=False, kind="stable").drop_duplicates("strategy").index
    cells = [
        (cell, mine)
        for cell in summary.loc[sorted(most)].itertuples()
        if not (mine := _of_cell(lines, cell, _kind(cell))).empty
    ]
    shown = cells[:PANELS]
    if not shown:
        legend(figure.subplots())
        foot(figure, summary, settings, notes=["No samples: the monitor was off, or nothing was measured."])
        return
    width = 1 if len(shown) == 1 or is_narrow(settings) else 2
    panels = figure.subplots(-(-len(shown) // width), width, squeeze=False, sharey=True).flat
    figure.set_figheight(max(figure.get_figheight(), (1.5 * -(-len(shown) // width) + 1.4) * settings.font_size_pt / 9))
    for axes, (cell, mine) in zip(panels, shown, strict=False):
        _over_time(axes, cell, mine, settings)
    for axes in list(figure.axes)[len(shown) :]:
        axes.set_axis_off()
    figure.axes[0].set_ylim(0, None)
    named = {text: line for axes in figure.axes for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(named) <= MOST_NAMED_LINES:
        legend_of_panels(figure, list(named.values()), list(named))
    figure.supylabel(f"utilisation in % ({_meaning(summary)})", fontsize=settings.font_size_pt)
    more = [f"{len(cells) - PANELS} more strategies: see timeline.csv."] if len(cells) > PANELS else []
    foot(figure, summary, settings, TIMELINE, more)


def _over_time(axes: Axes, cell: object, lines: pd.DataFrame, settings: FigureConfig) -> None:
    each = list(lines.groupby(["node", "name"], sort=False))
    for index, ((node, name), line) in enumerate(each):
        known = line[line.utilization_percent.notna()]
        axes.plot(
            known.time_s,
            known.utilization_percent,
            linestyle=LINES[index % len(LINES)],
            linewidth=1.0,
            label=_device(cell, node, str(name), line),
        )
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_title(wrapped(cell_name(cell)), fontsize=settings.font_size_pt)
    axes.set_xlabel("s since the first step")


def startup(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A bar per cell, its parts one after another: of each the median over ranks and repeats."""
    summary, table = tables["summary"], tables["startup"]
    axes = figure.subplots()
    parts = [*STARTUP_PARTS, "first_step_s"]
    colour_of = colours(parts, settings)
    found = [(cell_name(cell), _of_cell(table, cell)[parts].median()) for cell in summary.itertuples()]
    names = [wrapped(name) for name, _ in found]
    low_inches = 1.3 * settings.font_size_pt * lines_of(names) / 72
    found = found[: held(figure, len(found), low_inches, other_inches=1.3)]
    notes = left_out(len(names) - len(found), "cell", "startup.csv")
    names = names[: len(found)]
    begins = [0.0] * len(found)
    for part in parts:
        widths = [0.0 if medians[part] != medians[part] else float(medians[part]) for _, medians in found]
        if any(widths):
            axes.barh(range(len(found)), widths, left=begins, color=colour_of[part], label=worded(part))
        begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
    for row, end in enumerate(begins):
        axes.text(end, row, f" {end:.1f} s" if end else " not measured", va="center", color="0.1" if end else GREY)
    axes.set_yticks(range(len(found)), names)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_xlim(0, (1.3 if is_narrow(settings) else 1.15) * max(begins) or 1)
    label_x(axes, "s from the start of the launcher to the end of the first step", settings)
    axes.grid(axis="y", visible=False)
    figure.set_figheight(
        max(figure.get_figheight(), (0.22 * lines_of(names) * len(found) + 1.6) * settings.font_size_pt / 9)
    )
    legend(axes)
    drawn = STARTUP if any(begins) else ""
    foot(figure, summary, settings, drawn, notes)


def _meaning(summary: pd.DataFrame) -> str:
    return "NVML: time with any kernel" if "cuda" in set(summary.device) else "CPU time / allotted"


def _kind(cell: object) -> str:
    return "gpu" if cell.device == "cuda" else "rank"  # type: ignore[attr-defined]


def _device(cell: object, node: object, name: str, rows: pd.DataFrame) -> str:
    """Short: which GPU of the machine or rank it is, and of which node where there are several."""
    where = f"node {node} " if cell.nodes > 1 else ""  # type: ignore[attr-defined]
    return f"{where}{name[:12]}" if _kind(cell) == "gpu" else f"{where}rank {name}"


def _of_cell(table: pd.DataFrame, cell: object, kind: str | None = None) -> pd.DataFrame:
    mine = table
    for fact in ("strategy", "launcher", "nodes", "devices_per_node"):
        mine = mine[mine[fact] == getattr(cell, fact)]
    return mine if kind is None else mine[mine.kind == kind]
