"""DataFrames -> figures. They read columns and compute no metric.

FIGURES is the table of figures. Each answers the question that is its title; every point carries its interval or range,
the number of repeats is stated, and what was not measured is named with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig

if TYPE_CHECKING:  # plotting libraries are imported where they draw: Snakemake reads FIGURES at every start
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
UNDATED: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}

MM_PER_INCH = 25.4
MARKERS = "osD^vPX<>ph*"
LINES = ["-", "--", "-.", ":"]
GREY = "0.45"
FOOT_LINES = 24  # entries below a figure, which grows for them
ROOM_LINES = 6  # lines that it has room for as it is
Tables = dict[str, "pd.DataFrame"]


@dataclass(frozen=True, kw_only=True)
class FigureRow:
    """One row of FIGURES."""

    question: str  # its title
    tables: tuple[str, ...]  # that it reads
    draw: Callable[[Figure, Tables, FigureConfig], None]  # on an empty figure


def render(name: str, tables: Tables, settings: FigureConfig, formats: Sequence[str] = FORMATS) -> dict[str, bytes]:
    """Format -> the file of the figure of that name in FIGURES: the same bytes for the same tables."""
    from matplotlib import rc_context

    files = {}
    with rc_context(_style(name, settings)):  # some of it is for drawing, some for saving
        figure = make_figure(name, tables, settings)
        for kind in formats:
            file = BytesIO()
            figure.savefig(file, format=kind, dpi=settings.png_dpi, metadata=UNDATED[kind])
            files[kind] = file.getvalue()
    return files


def _style(name: str, settings: FigureConfig) -> dict[Any, Any]:
    return {
        "font.size": settings.font_size_pt,
        "axes.titlesize": settings.font_size_pt + 1,
        "legend.fontsize": settings.font_size_pt - 1,
        "axes.grid": True,
        "grid.color": "0.9",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "text.parse_math": False,  # a reason may hold any sign
        "svg.hashsalt": name,
        "svg.fonttype": "none",  # text that can be searched for
        "pdf.fonttype": 42,
    }


def make_figure(name: str, tables: Tables, settings: FigureConfig) -> Figure:
    """The figure of that name in FIGURES, in the style that is set."""
    from matplotlib.figure import Figure

    row = FIGURES[name]
    size = (settings.width_mm / MM_PER_INCH, 0.58 * settings.width_mm / MM_PER_INCH)
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(row.question, fontsize=settings.font_size_pt + 2, fontweight="bold")
    row.draw(figure, tables, settings)
    return figure


def series(summary: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(label, cells) of every line over N: a strategy under a launcher on a number of nodes."""
    several_launchers, several_precisions = summary.launcher.nunique() > 1, summary.precision.nunique() > 1
    for (strategy, launcher, nodes), cells in summary.groupby(["strategy", "launcher", "nodes"], sort=False):
        label = f"{strategy}, {launcher}" if several_launchers and cells.base.iloc[0] != "single" else str(strategy)
        label += f", {cells.precision.iloc[0]}" if several_precisions else ""
        yield label + (f", {nodes} nodes" if cells.nodes.iloc[0] > 1 else ""), cells.sort_values("devices")


def _colours(names: list[str], settings: FigureConfig) -> dict[str, tuple]:
    import seaborn as sns

    distinct = len(sns.color_palette(settings.palette))  # beyond them seaborn would begin again
    palette = sns.color_palette(settings.palette if len(names) <= distinct else "husl", len(names))
    return dict(zip(names, palette, strict=True))


def _styles(summary: pd.DataFrame, settings: FigureConfig) -> Iterator[tuple[str, pd.DataFrame, dict]]:
    """Series with a colour by strategy, and a marker and line of their own: they survive a grey print."""
    colours = _colours(list(dict.fromkeys(summary.strategy)), settings)
    for index, (label, cells) in enumerate(series(summary)):
        yield (
            label,
            cells,
            {
                "color": colours[cells.strategy.iloc[0]],
                "marker": MARKERS[index % len(MARKERS)],
                "linestyle": LINES[index % len(LINES)],
            },
        )


def _over_devices(
    axes: Axes, summary: pd.DataFrame, column: str, settings: FigureConfig
) -> list[tuple[str, pd.DataFrame, pd.Series, dict]]:
    """Lines of a column over N with its low and high, and x ticks at the N that were measured.

    Returns:
        (label, cells, where their points are along N, style) of each line.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    all_series = [(label, cells[cells[column].notna()], style) for label, cells, style in _styles(summary, settings)]
    drawn = [(label, cells, style) for label, cells, style in all_series if len(cells)]
    apart = min(0.025, 0.2 / max(1, len(drawn)))
    lines = []
    for index, (label, cells, style) in enumerate(drawn):
        beside = 1 + apart * (index - (len(drawn) - 1) / 2)  # so that intervals at one N don't hide each other
        errors = [cells[column] - cells[f"{column}_low"], cells[f"{column}_high"] - cells[column]]
        axes.errorbar(cells.devices * beside, cells[column], yerr=errors, capsize=3, label=label, **style)
        lines.append((label, cells, cells.devices * beside, style))
    axes.set_xscale("log", base=2)
    ticks = sorted(summary.devices.unique())
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([str(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(ticks[0] / 1.25, ticks[-1] * 1.25)
    axes.set_xlabel("devices N")
    return lines


def _foot(
    figure: Figure, summary: pd.DataFrame, settings: FigureConfig, spread: str = "spread", notes: Sequence[str] = ()
) -> None:
    """Below the axes: what points and bars are, the base, notes, warnings, and what was not measured and why."""
    good = summary[summary.status == "ok"]
    lines = []
    if len(good):
        bars = ", ".join(str(kind) for kind in dict.fromkeys(good[spread].dropna()))
        counts = "-".join(str(count) for count in sorted({good.repeats.min(), good.repeats.max()}))
        lines.append(f"Points: median of {counts} launches; bars: {bars}.")
    if spread == "speedup_spread" and len(good):
        bases = [base for base in dict.fromkeys(good.base_cell.fillna("")) if base]
        lines[0] += f" Base: {', '.join(bases)}." if bases else " No cell on one device: no base, so n/a."
    lines += notes
    for status, cells in summary[summary.status != "ok"].groupby("status", sort=False):
        for reason, those in cells.groupby("reason", sort=False):
            names = ", ".join(_cell_name(cell) for cell in those.itertuples())
            lines.append(f"{str(status).capitalize()}: {shorten(names, 110, placeholder=' ...')} ({reason})")
    warned = good[good.warnings.fillna("") != ""]
    for kind, cells in warned.groupby(warned.warnings.map(_without_numbers), sort=False):
        names = ", ".join(_cell_name(cell) for cell in cells.itertuples())
        text = cells.warnings.iloc[0] if len(cells) == 1 else f"{kind} (more in summary.csv)"
        lines.append(f"Warning: {text}: {shorten(names, 110, placeholder=' ...')}")
    letters = int(settings.width_mm / MM_PER_INCH * 72 / (0.58 * (settings.font_size_pt - 2)))  # that fit on a line
    shown = lines[:FOOT_LINES]
    if len(lines) > FOOT_LINES:
        shown.append(f"... and {len(lines) - FOOT_LINES} more: see summary.csv")
    text = "\n".join(fill(line, letters) for line in shown)
    line_height = 1.2 * (settings.font_size_pt - 2) / 72  # inches, as the figure's
    figure.set_figheight(figure.get_figheight() + line_height * max(0, text.count("\n") + 1 - ROOM_LINES))
    figure.supxlabel(
        text,
        fontsize=settings.font_size_pt - 2,
        color="0.25",
        x=0.01,
        ha="left",
    )


def _without_numbers(warning: str) -> str:
    """What a warning of several cells has in common, so that it takes one line."""
    return re.sub(r" \(in \d+ of \d+ repeats\)", "", re.sub(r"\d[\d.]* %", "part", warning))


def _cell_name(cell: object) -> str:
    return f"{cell.strategy}/{cell.launcher}/{cell.nodes}x{cell.devices_per_node}"  # type: ignore[attr-defined]


def _legend(axes: Axes) -> None:
    if labels := axes.get_legend_handles_labels()[1]:
        legend = axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure = axes.get_figure(root=True)
        assert figure is not None
        line_pt = 1.5 * legend.prop.get_size_in_points()
        figure.set_figheight(max(figure.get_figheight(), (len(labels) + 8) * line_pt / 72))  # it, and the foot
    else:
        axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)


def _speedup(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    summary = tables["summary"]
    axes = figure.subplots()
    _over_devices(axes, summary, "speedup", settings)
    ticks = sorted(summary.devices.unique())
    axes.plot(ticks, ticks, color=GREY, linestyle=":", label="linear", zorder=0)
    axes.set_ylabel("speed-up X(N) / X(1)")
    axes.set_ylim(0, None)
    _legend(axes)
    _foot(figure, summary, settings, "speedup_spread")


def _efficiency(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    summary = tables["summary"]
    axes = figure.subplots()
    _over_devices(axes, summary, "scaling_efficiency", settings)
    axes.axhline(1.0, color=GREY, linestyle=":", label="linear", zorder=0)
    axes.set_ylabel("scaling efficiency X(N) / (N X(1))")
    axes.set_ylim(0, None)
    _legend(axes)
    _foot(figure, summary, settings, "speedup_spread")


def _epoch_time(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """The least time of each line is ringed; what more devices take, and the wrapper on one device, is put in words."""
    summary = tables["summary"]
    axes = figure.subplots()
    notes: list[str] = []
    for label, cells, places, style in _over_devices(axes, summary, "epoch_time_s", settings):
        notes += _on_one_device(label, cells, summary)
        if len(cells) == 1:
            continue
        least = int(cells.epoch_time_s.argmin())
        axes.plot(
            places.iloc[least],
            cells.epoch_time_s.iloc[least],
            marker="o",
            markersize=13,
            fillstyle="none",
            color=style["color"],
        )
        more = [f"{_seconds(cell.epoch_time_s)} on {cell.devices}" for cell in cells[least + 1 :].itertuples()]
        rise = f"; more of them take longer: {', '.join(more)}" if more else ", the most that were measured"
        fastest = cells.iloc[least]
        notes.append(f"{label}: least on {fastest.devices} devices, {_seconds(fastest.epoch_time_s)}{rise}.")
    axes.set_xlabel("processes N" if set(summary.device) == {"cpu"} else "devices N")
    axes.set_ylabel("epoch time in s (training)")
    axes.set_ylim(0, None)
    _legend(axes)
    _foot(figure, summary, settings, notes=notes)


def _on_one_device(label: str, cells: pd.DataFrame, summary: pd.DataFrame) -> Iterator[str]:
    """What a strategy costs where there is nobody to exchange anything with."""
    for cell in cells[(cells.devices == 1) & (cells.base != "single")].itertuples():
        for base in summary.itertuples():
            if _cell_name(base) == cell.base_cell != _cell_name(cell):
                yield (
                    f"{label} on one device: {_seconds(cell.epoch_time_s)}, {base.strategy} {_seconds(base.epoch_time_s)}; "
                    f"{cell.speedup:.2f} times as fast ({cell.speedup_low:.2f} to {cell.speedup_high:.2f})."
                )


def _seconds(value: Any) -> str:
    return f"{_rounded(value)} s"


def _rounded(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"


def _evaluation(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    summary = tables["summary"]
    axes = figure.subplots()
    _over_devices(axes, summary, "evaluation_throughput_samples_per_s", settings)
    axes.set_ylabel("test samples per second")
    axes.set_ylim(0, None)
    _legend(axes)
    _foot(figure, summary, settings)


def _comparison(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
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
    colours = _colours(list(dict.fromkeys(summary.strategy)), settings)
    several = summary.precision.nunique() > 1
    labels = [_cell_name(cell) + (f", {cell.precision}" if several else "") for cell in summary.itertuples()]
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
            axes.barh(row, value, xerr=error, color=colours[cell.strategy], capsize=2, height=0.7, ecolor="0.2")
            axes.annotate(  # at the bar's root, where no error bar can hide it; haloed, as it may be longer than the bar
                _rounded(value),
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
    _foot(figure, summary, settings)


def _loss(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    import seaborn as sns

    losses, summary = tables["losses"], tables["summary"]
    axes = figure.subplots()
    for label, cells, style in _styles(summary, settings):
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
    _legend(axes)
    _foot(figure, summary, settings)


FIGURES: dict[str, FigureRow] = {
    "comparison": FigureRow(question="What does each way to train cost?", tables=("summary",), draw=_comparison),
    "speedup": FigureRow(question="How much faster do N devices train than one?", tables=("summary",), draw=_speedup),
    "efficiency": FigureRow(question="What share of N devices is put to use?", tables=("summary",), draw=_efficiency),
    "epoch_time": FigureRow(
        question="How long does an epoch take on N devices?", tables=("summary",), draw=_epoch_time
    ),
    "loss": FigureRow(question="Does it learn the same?", tables=("summary", "losses"), draw=_loss),
    "evaluation": FigureRow(question="How fast is the test set evaluated?", tables=("summary",), draw=_evaluation),
}
