"""What collectives carry and how long they take, over the size of what they exchange: a panel for each operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    LINES,
    MARKERS,
    Tables,
    colours,
    is_narrow,
    legend_of_panels,
    smaller,
    write_foot,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS, NARROW_COLUMNS = 3, 2  # of panels
PANEL_HEIGHT_INCHES = 1.6
LINE_PT = 1.6  # from one upright label to the next, over their size
LETTER = 0.65  # width over size of one of theirs, with its share of the space between two
NOTHING = "n/a: this experiment times no collectives (collectives.operations in its configuration)"


def bus_bandwidth(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    table = tables["collectives"]
    for axes, _, lines in _panels(figure, table, settings):
        for label, rows, style in lines:
            _line(axes, rows, "busbw_GB_per_s", label, style)
            limit = rows.copy_GB_per_s.iloc[0]
            axes.axhline(limit, color=style["color"], linestyle=":", linewidth=1)
        _log(axes, "{:g}".format)
    _legend(figure)
    figure.supylabel("bus bandwidth in GB/s", fontsize=settings.font_size_pt)
    note = "Dotted: what each rank copies within its memory while all do, which no exchange beats for large sizes."
    _foot(figure, table, settings, [note])


def collective_time(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    table = tables["collectives"]
    for axes, _, lines in _panels(figure, table, settings):
        for label, rows, style in lines:
            _line(axes, rows, "time_s", label, style)
            known = rows[rows.time_p99_s.notna()]
            axes.plot(known.size_bytes, known.time_p99_s, color=style["color"], linestyle=":", linewidth=1)
        _log(axes, time_name)
    _legend(figure)
    figure.supylabel("time of one call", fontsize=settings.font_size_pt)
    _foot(figure, table, settings, ["Dotted: the 99th percentile, where there are 100 blocks or more."])


Line = tuple[str, "pd.DataFrame", dict[str, Any]]


def _panels(figure: Figure, table: pd.DataFrame, settings: FigureConfig) -> Iterator[tuple[Axes, str, list[Line]]]:
    """(axes, operation, lines that are to be drawn) of each operation that was measured."""
    good = table[table.status == "ok"]
    operations = list(dict.fromkeys(good.operation))
    if not operations:
        axes = figure.subplots()
        axes.axis("off")
        axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)
        return
    width = min(NARROW_COLUMNS if is_narrow(settings) else COLUMNS, len(operations))
    height = math.ceil(len(operations) / width)
    figure.set_figheight(max(figure.get_figheight(), (height * PANEL_HEIGHT_INCHES + 1) * settings.font_size_pt / 9))
    all_axes = figure.subplots(height, width, sharex=True, sharey=True, squeeze=False)
    labels = list(dict.fromkeys(_labels(good)))
    room_pt = _panel_width_pt(figure, labels, width, settings)
    colour_of = colours(labels, settings)
    for index, axes in enumerate(all_axes.flat):
        if index >= len(operations):
            axes.axis("off")
            continue
        rows = good[good.operation == operations[index]]
        lines = [
            (
                label,
                mine.sort_values("size_bytes"),
                {
                    "color": colour_of[label],
                    "marker": MARKERS[labels.index(label) % len(MARKERS)],
                    "linestyle": LINES[labels.index(label) % len(LINES)],
                },
            )
            for label, mine in rows.groupby(_labels(rows), sort=False)
        ]
        axes.set_title(operations[index].replace("_", "-"), fontsize=settings.font_size_pt)
        axes.tick_params(labelsize=smaller(settings, 2), labelbottom=index + width >= len(operations))
        if index + width >= len(operations):
            axes.set_xlabel("size of the array")
        _sizes(axes, sorted(good.size_bytes.unique()), room_pt, smaller(settings, 2))
        yield axes, operations[index], lines


def _panel_width_pt(figure: Figure, labels: list[str], panels: int, settings: FigureConfig) -> float:
    """Of the axes of one panel, about: what numbers of the vertical axis and a legend beside the panels leave."""
    size_pt = settings.font_size_pt
    legend_pt = 0 if is_narrow(settings) else size_pt * (0.55 * max(map(len, labels)) + 5)
    return (72 * figure.get_figwidth() - legend_pt - 6 * size_pt) / panels - 2 * size_pt


def _sizes(axes: Axes, sizes: list[int], room_pt: float, size_pt: float) -> None:
    """A logarithmic axis with ticks at sizes that were measured, at so many as there is room for labels; these stand upright
    where they would lie on each other."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_xlim(sizes[0] / 1.5, sizes[-1] * 1.5)
    lying = LETTER * size_pt * max(len(size_name(size)) + 1 for size in sizes) * len(sizes) <= room_pt
    ticks = sizes if lying else apart(sizes, room_pt / (LINE_PT * size_pt))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([size_name(size) for size in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", rotation=0 if lying else 90)


def apart(sizes: list[int], most: float) -> list[int]:
    """Of ascending sizes those that stand so far apart on a logarithmic axis that about so many labels have room."""
    least_ratio = (sizes[-1] / sizes[0]) ** (1 / most) * (1 - 1e-9)
    kept = sizes[:1]
    for size in sizes[1:]:
        if size >= kept[-1] * least_ratio:
            kept.append(size)
    return kept


def _labels(rows: pd.DataFrame) -> pd.Series:
    """The line that each row is a point of."""
    labels = rows.nodes.astype(str) + "x" + rows.devices_per_node.astype(str)
    for column in ("launcher", "dtype"):
        if rows[column].nunique() > 1 or column == "launcher":
            labels = labels + ", " + rows[column]
    return labels


def _line(axes: Axes, rows: pd.DataFrame, column: str, label: str, style: dict[str, Any]) -> None:
    errors = [rows[column] - rows[f"{column}_low"], rows[f"{column}_high"] - rows[column]]
    axes.errorbar(
        rows.size_bytes, rows[column], yerr=errors, capsize=2, markersize=3, linewidth=1, label=label, **style
    )


def _log(axes: Axes, name: Callable[[float], str]) -> None:
    from matplotlib.ticker import NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: name(value))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _legend(figure: Figure) -> None:
    """One for all panels."""
    found = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    legend_of_panels(figure, list(found.values()), list(found))


def _foot(figure: Figure, table: pd.DataFrame, settings: FigureConfig, notes: list[str]) -> None:
    good = table[table.status == "ok"]
    lines = []
    if len(good):
        blocks = "-".join(str(int(count)) for count in sorted({good.blocks.min(), good.blocks.max()}))
        bars = ", ".join(dict.fromkeys(good.spread))
        lines = [
            f"Points: median of {blocks} blocks of calls, each as long as its slowest rank's; bars: {bars}. {notes[0]}"
        ]
        lines += notes[1:]
    elif table.empty:
        lines = [NOTHING]
    absent = table[table.status != "ok"]
    for (status, reason), rows in absent.groupby(["status", "reason"], sort=False):
        names = dict.fromkeys(
            f"{row.operation}/{row.dtype}/{row.launcher}/{row.nodes}x{row.devices_per_node}"
            for row in rows.itertuples()
        )
        shown = ", ".join(list(names)[:4]) + (" ..." if len(names) > 4 else "")
        lines.append(f"{str(status).capitalize()}: {shown} ({reason})")
    for warning, rows in good[good.warnings.fillna("") != ""].groupby("warnings", sort=False):
        places = dict.fromkeys(f"{row.launcher}/{row.nodes}x{row.devices_per_node}" for row in rows.itertuples())
        lines.append(f"Warning: {warning}: {', '.join(places)}")
    write_foot(figure, lines, settings, "collectives.csv")


def time_name(time_s: float) -> str:
    """2 ms of 0.002."""
    for name, unit_s in (("s", 1.0), ("ms", 1e-3)):
        if time_s >= 0.999 * unit_s:
            return f"{time_s / unit_s:.3g} {name}"
    return f"{time_s / 1e-6:.3g} µs"


def size_name(size_bytes: float) -> str:
    """4 KiB of 4096."""
    for name, unit in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.3g} {name}"
    return f"{size_bytes:.3g} B"
