"""Published numbers and ours, one row to a cell and one panel to a quantity. Published ones are hollow and grey: they are of
somebody else's machine."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    MM_PER_INCH,
    Tables,
    colours,
    foot,
    held,
    in_print,
    is_narrow,
    left_out,
    medians_of_launches,
    rounded,
    smaller,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "epoch_with_evaluation_s": "epoch time in s\n(training and evaluation)",
    "step_time_s": "step time in s\n(median)",
    "step_time_p75_s": "step time in s\n(75th percentile)",
    "throughput_samples_per_s": "samples per second",
    "throughput_per_device_tokens_per_s": "tokens per second\nand device",
    "utilization_percent": "utilisation in %",
    "mean_memory_GB": "mean memory in GB\n(per device)",
    "mean_memory_percent": "mean memory in %\n(of a device's)",
    "peak_reserved_GiB": "peak memory in GiB\n(torch's allocator)",
    "speedup_vs_reference": "speed-up\n(over the reference)",
}
LOGARITHMIC = {
    "epoch_with_evaluation_s",
    "throughput_samples_per_s",
    "speedup_vs_reference",
}  # a cluster, and one device
ROW = [
    "reference_set",
    "whose",
    "source",
    "system",
    "strategy",
    "precision",
    "batch_size_per_device",
    "nodes",
    "devices",
]
PANELS = 3  # side by side, on a screen
LEAST_PANEL = 7.5  # of a panel in print: width over size of its text
LINE = 1.3  # height over size of text
BAND_LINES = 7.5  # of text that titles of panels and the numbers below them take
TIGHT_PT = 72.0
NUMBER_SHARE = 0.6  # of a tight panel's width, for the numbers
SPEEDUP = "speedup_vs_reference"
HERE = "ours"


def published(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """Rows in the order of the table: each published cell, and below it ours that is the same."""
    numbers = tables["published"].copy()
    if numbers.empty:
        axes = figure.subplots()
        axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)
        axes.set_axis_off()
        notes = ["This experiment has no published numbers laid over its own (references in its configuration)."]
        foot(figure, tables["summary"], settings, notes=notes)
        return
    numbers["place"] = numbers.groupby(ROW, sort=False, dropna=False).ngroup()
    rows = numbers.drop_duplicates("place")
    sources = {
        text: number for number, text in enumerate(dict.fromkeys(map(_origin, _rows(rows[rows.whose != HERE]))), 1)
    }
    quantities = [*dict.fromkeys(numbers.quantity), *([SPEEDUP] if numbers[SPEEDUP].notna().any() else [])]
    several_launchers = _launchers(rows[rows.whose == HERE]).nunique() > 1
    labels = [_label(row, sources, several_launchers) for row in _rows(rows)]
    labels = _shortened(labels) if is_narrow(settings) else labels
    layout = _layout(figure, labels, len(quantities), settings)
    kept = _kept(rows, layout.rows)
    places = {place: index for index, place in enumerate(kept)}
    shown = numbers[numbers.place.isin(kept)].assign(place=numbers.place.map(places))
    figure.set_figheight(
        layout.height_inches if layout.is_compact else max(figure.get_figheight(), layout.height_inches)
    )
    grid = figure.subplots(layout.bands, layout.beside, squeeze=False, sharey=True).flatten()
    for axes, quantity in zip(grid, quantities, strict=False):
        _panel(axes, shown, quantity, layout, settings)
    for axes in grid[len(quantities) :]:
        axes.set_visible(False)
    grid[0].set_yticks(range(len(kept)), [layout.named(labels[place]) for place in kept])
    grid[0].set_ylim(len(kept) - 0.5, -0.5)
    drawn = medians_of_launches(tables["summary"], "Filled, measured here")
    more = left_out(len(rows) - len(kept), "row", "published.csv")
    foot(figure, tables["summary"], settings, drawn, [*_notes(numbers, sources), *more])


@dataclass(frozen=True)
class Layout:
    """Bands of panels below each other; each has all rows."""

    is_compact: bool  # a figure for print or a narrow one: small text, and rows as low as can be read
    beside: int  # panels in a band
    bands: int
    panel_pt: float  # width of a panel
    rows: int  # that there is room for
    lines: int  # of a row's name
    height_inches: float

    @property
    def is_tight(self) -> bool:
        """Whether numbers need a column of their own, for want of room beside their points."""
        return self.panel_pt < TIGHT_PT

    def named(self, label: str) -> str:
        return label.replace("\n", ", ") if self.lines == 1 else label


def _layout(figure: Figure, labels: Sequence[str], quantities: int, settings: FigureConfig) -> Layout:
    """On a screen three panels side by side, in a narrow or a printed figure as many as numbers and names leave room for."""
    size_pt, width_pt = smaller(settings, 2), 72 * settings.width_mm / MM_PER_INCH
    narrow, wanted = is_narrow(settings), len(labels)
    compact = narrow or in_print(figure)
    beside, lines = min(PANELS, quantities), 2
    low_inches, band_inches = 0.26 * settings.font_size_pt / 9, 1.2 * settings.font_size_pt / 9
    if compact:
        beside = max(1, min(quantities, int((width_pt - _names_pt(labels, 2, size_pt)) / (LEAST_PANEL * size_pt))))
        low_inches, band_inches = (2 * LINE * size_pt + 1.5) / 72, BAND_LINES * size_pt / 72
    bands = -(-quantities // beside)
    rows = held(figure, wanted, bands * low_inches, bands * band_inches)
    if in_print(figure) and not narrow and rows < wanted:
        lines, low_inches = 1, (LINE * size_pt + 1.5) / 72
        rows = held(figure, wanted, bands * low_inches, bands * band_inches)
    height_inches = bands * (low_inches * rows + band_inches)
    height_inches += 0 if in_print(figure) else 1.2 * settings.font_size_pt / 9
    panel_pt = (width_pt - _names_pt(labels, lines, size_pt)) / beside - size_pt
    return Layout(compact, beside, bands, panel_pt, rows, lines, height_inches)


def _names_pt(labels: Sequence[str], lines: int, size_pt: float) -> float:
    """Width of the names of rows, about, with the space beside them."""
    letters = max(len(line) for label in labels for line in (label.split("\n") if lines > 1 else [label]))
    return size_pt * (0.53 * letters + 1.5)


def _shortened(labels: list[str]) -> list[str]:
    """Without what stands in parentheses, unless names are told apart by that."""
    short = [re.sub(r" \([^)]*\)", "", label) for label in labels]
    return short if len(set(short)) == len(set(labels)) else labels


def _kept(rows: pd.DataFrame, most: int) -> list[int]:
    """Places of the rows that there is room for: ours first, but in the order of the table."""
    ours_first = rows.assign(is_theirs=rows.whose != HERE).sort_values("is_theirs", kind="stable")
    return sorted(ours_first.place.head(most))


def _panel(axes: Axes, numbers: pd.DataFrame, quantity: str, layout: Layout, settings: FigureConfig) -> None:
    """A point for each number, with the number beside it; ours with its low and high, or why there is none."""
    column = SPEEDUP if quantity == SPEEDUP else "value"
    of_panel = numbers if quantity == SPEEDUP else numbers[numbers.quantity == quantity]
    drawn = of_panel[of_panel[column].notna()]
    alone = ~drawn.place.duplicated(
        keep=False
    )  # of several launches that a source lists there is no room for the numbers
    for row in _rows(drawn):
        value, low, high = (getattr(row, f"{column}{end}") for end in ("", "_low", "_high"))
        error = [[value - low], [high - value]] if low == low else None
        look = _look(row, settings)
        size = 3.5 if layout.is_tight else 5
        axes.errorbar(value, row.place, xerr=error, marker="o", markersize=size, capsize=2, linestyle="none", **look)
        if alone[row.Index]:
            digits = rounded(value) if row.whose == HERE else f"{value:.5g}"  # as many as sources give
            _number(axes, digits, value if high != high else high, row.place, layout, settings)
    ours = numbers[numbers.whose == HERE]
    absent = ours[~ours.place.isin(drawn.place)].sort_values("quantity", key=lambda names: names != quantity)
    for row in _rows(absent.drop_duplicates("place")):
        axes.text(
            0.05 if layout.is_tight else 0.02,
            row.place,
            _why_absent(row, quantity, layout) if layout.is_tight else f" {_why_absent(row, quantity, layout)}",
            transform=axes.get_yaxis_transform(),
            va="center",
            color=GREY,
            style="italic",
            fontsize=smaller(settings, 2) if layout.is_compact else settings.font_size_pt,
        )
    _scale(axes, drawn, column, quantity, layout, settings)
    title_pt = smaller(settings, 2 if layout.is_compact else 1)
    letters = max(11, int(layout.panel_pt / (0.62 * title_pt)))
    lines = LABELS[quantity].replace(" in ", " in\u00a0").split("\n")  # a unit on no line of its own
    axes.set_title("\n".join(fill(line, letters) for line in lines) if layout.is_compact else LABELS[quantity])
    axes.title.set_fontsize(title_pt)
    for text in axes.texts:
        text.set_in_layout(not layout.is_tight)  # it is within the panel, which else would become narrower for it
    axes.grid(axis="y", visible=False)
    length = {"length": 0} if layout.is_tight else {}
    axes.tick_params(axis="y", labelsize=smaller(settings, 2), **length)  # long names, on two lines


def _why_absent(row: Any, quantity: str, layout: Layout) -> str:
    """Why a row of ours has no number in a panel."""
    if row.status != "ok":
        return str(row.status)
    if quantity == SPEEDUP:
        return "no\nreference" if layout.is_tight else "no reference"
    if layout.is_tight:
        return "not\nmeasured"
    return "not measured" if layout.is_compact or row.quantity != quantity else str(row.reason)


def _number(axes: Axes, digits: str, end: float, place: int, layout: Layout, settings: FigureConfig) -> None:
    """Behind the bar; where it is tight, in a column at the right."""
    size_pt = smaller(settings, 2)
    if layout.is_tight:
        across = axes.get_yaxis_transform()
        axes.annotate(digits, (1, place), xycoords=across, ha="right", va="center", fontsize=size_pt)
    else:
        axes.annotate(digits, (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=size_pt)


def _scale(axes: Axes, drawn: pd.DataFrame, column: str, quantity: str, layout: Layout, settings: FigureConfig) -> None:
    """The axis below a panel, with room for numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    if layout.is_compact:
        axes.tick_params(axis="x", labelsize=smaller(settings, 2))
    if drawn.empty:
        return
    if quantity in LOGARITHMIC:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.35)
    low, high = float(drawn[column].min()), float(max(drawn[column].max(), drawn[f"{column}_high"].fillna(0).max()))
    if layout.is_tight and quantity in LOGARITHMIC:
        decades = max(0.5, math.log10(high / low))
        axes.set_xlim(low / 10 ** (0.1 * decades), low * 10 ** (decades / (1 - NUMBER_SHARE)))
        axes.xaxis.set_major_locator(LogLocator(numticks=2))
        axes.xaxis.set_minor_locator(NullLocator())
    elif layout.is_tight:
        axes.set_xlim(0, high / (1 - NUMBER_SHARE))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=2))
    elif quantity not in LOGARITHMIC:
        axes.set_xlim(0, 1.3 * drawn[column].max())


def _look(row: Any, settings: FigureConfig) -> dict[str, Any]:
    if row.whose == HERE:
        return {"color": colours([HERE], settings)[HERE]}
    return {"color": GREY, "markerfacecolor": "white"}


def _rows(numbers: pd.DataFrame) -> list[Any]:
    return list(numbers.itertuples())


def _origin(row: Any) -> str:
    return f"{row.source} ({row.system}, {row.device_model})"


def _launchers(mine: pd.DataFrame) -> pd.Series:
    """Of rows of ours, by the name of their cell: strategy/launcher/topology."""
    return mine.measured_cell.str.split("/").str[-2]


def _label(row: Any, sources: dict[str, int], several_launchers: bool) -> str:
    """What a row is; of somebody else's with the number of its source, of ours with its launcher where there are several."""
    what = f"{row.strategy}\n{row.precision}, {row.nodes}x{row.devices // row.nodes}"
    launcher = f", {row.measured_cell.split('/')[-2]}" if several_launchers and row.whose == HERE else ""
    return f"{what}{launcher}, here" if row.whose == HERE else f"{what} [{sources[_origin(row)]}]"


def _in_words(quantity: str) -> str:
    """A quantity within a sentence, without its unit."""
    return re.sub(r" in (s|%|GB|GiB)(?=\s|$)", "", LABELS[quantity]).replace("\n", " ")


def _notes(numbers: pd.DataFrame, sources: dict[str, int]) -> Iterator[str]:
    yield "Hollow: published, of somebody else's machine, by the source in brackets; blank: not published."
    for origin, number in sources.items():
        yield f"[{number}] {origin}"
    speeds = _rows(numbers[numbers[SPEEDUP].notna()])
    cells = dict.fromkeys(f"{row.reference_cell} ({'here' if row.whose == HERE else 'published'})" for row in speeds)
    if cells:
        yield f"Reference of speed-ups: {', '.join(cells)}; what else differs stands in published.csv."
    for row in _rows(numbers[numbers.measured_over_published.notna()].fillna({"measured_differs_in": ""})):
        times = (
            f"{rounded(row.measured_over_published)} times the {_in_words(row.quantity)} of [{sources[_origin(row)]}]"
        )
        yield f"{row.measured_cell}: {times}{'; ' if row.measured_differs_in else ''}{row.measured_differs_in}."
