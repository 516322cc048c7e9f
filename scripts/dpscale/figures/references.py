"""Published numbers and ours, one row to a cell and one panel to a quantity. Published ones are hollow and grey: they are of
somebody else's machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.drawing import GREY, Tables, colours, foot, is_narrow, medians_of_launches, rounded, smaller

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
PANELS, NARROW_PANELS = 3, 2  # side by side
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
    beside = min(NARROW_PANELS if is_narrow(settings) else PANELS, len(quantities))
    panels = -(-len(quantities) // beside)
    height = (0.26 * len(rows) + 1.2) * panels + 1.2
    figure.set_figheight(max(figure.get_figheight(), height * settings.font_size_pt / 9))
    grid = figure.subplots(panels, beside, squeeze=False, sharey=True).flatten()
    for axes, quantity in zip(grid, quantities, strict=False):
        _panel(axes, numbers, quantity, settings)
    for axes in grid[len(quantities) :]:
        axes.set_visible(False)
    mine = rows[rows.whose == HERE]
    several_launchers = _launchers(mine).nunique() > 1
    labels = [_label(row, sources, several_launchers) for row in _rows(rows)]
    grid[0].set_yticks(range(len(rows)), labels)
    grid[0].set_ylim(len(rows) - 0.5, -0.5)
    drawn = medians_of_launches(tables["summary"], "Filled, measured here")
    foot(figure, tables["summary"], settings, drawn, list(_notes(numbers, sources)))


def _panel(axes: Axes, numbers: pd.DataFrame, quantity: str, settings: FigureConfig) -> None:
    """A point for each number, with the number beside it; ours with its low and high."""
    from matplotlib.ticker import LogLocator

    column = SPEEDUP if quantity == SPEEDUP else "value"
    drawn = numbers[numbers[column].notna()] if quantity == SPEEDUP else numbers[numbers.quantity == quantity]
    alone = ~drawn.place.duplicated(
        keep=False
    )  # of several launches that a source lists there is no room for the numbers
    for row in _rows(drawn):
        value, low, high = (getattr(row, f"{column}{end}") for end in ("", "_low", "_high"))
        if value != value:  # NaN: there is none
            why = "not measured" if is_narrow(settings) else row.reason
            text = f" {row.status if row.status != 'ok' else why}"
            axes.text(
                0.02,
                row.place,
                text,
                transform=axes.get_yaxis_transform(),
                va="center",
                color=GREY,
                style="italic",
                fontsize=smaller(settings, 1 if is_narrow(settings) else 0),
            )
            continue
        error = [[value - low], [high - value]] if low == low else None
        look = _look(row, settings)
        axes.errorbar(value, row.place, xerr=error, marker="o", markersize=5, capsize=2, linestyle="none", **look)
        if alone[row.Index]:
            axes.annotate(
                rounded(value) if row.whose == HERE else f"{value:.5g}",  # as many digits as sources give
                (value if high != high else high, row.place),  # behind the bar
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=smaller(settings, 2),
            )
    if quantity in LOGARITHMIC and drawn[column].notna().any():
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
        if is_narrow(settings):
            axes.xaxis.set_major_locator(LogLocator(numticks=3))
            axes.tick_params(axis="x", labelsize=smaller(settings, 1))
        axes.margins(x=0.35)
    elif drawn[column].notna().any():
        axes.set_xlim(0, 1.3 * drawn[column].max())
    axes.set_title(LABELS[quantity], fontsize=smaller(settings, 1))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", labelsize=smaller(settings, 2))  # long names, on two lines


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


def _notes(numbers: pd.DataFrame, sources: dict[str, int]) -> Iterator[str]:
    yield "Hollow: published, of somebody else's machine, by the source in brackets."
    for origin, number in sources.items():
        yield f"[{number}] {origin}"
    speeds = _rows(numbers[numbers[SPEEDUP].notna()])
    cells = dict.fromkeys(f"{row.reference_cell} ({'here' if row.whose == HERE else 'published'})" for row in speeds)
    if cells:
        yield f"Reference of speed-ups: {', '.join(cells)}; what else differs stands in published.csv."
    for row in _rows(numbers[numbers.measured_over_published.notna()].fillna({"measured_differs_in": ""})):
        times = f"{rounded(row.measured_over_published)} times the {row.quantity} of [{sources[_origin(row)]}]"
        yield f"{row.measured_cell}: {times}{'; ' if row.measured_differs_in else ''}{row.measured_differs_in}."
