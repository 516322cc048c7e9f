"""The linked views, as a Bokeh document without data: the page fills its sources, which views share.

Three sources: `cells` has a row per cell, `lines` one per line over N, `bars` one per explained cell that is shown; `pointed`
is the one cell that the reader points at. Bokeh itself keeps selections of one source alike in all views.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpscale.figures.causes import PARTS
from dpscale.figures.parts import hatch_of, part_colours

if TYPE_CHECKING:
    from bokeh.models import ColumnDataSource, Plot

    from dpscale.config import FigureConfig

HEIGHT_PX = 320
FADED = 0.35  # of what is not selected, while something is
LEAST_RATIO = 1.35  # of one tick along N to the next, so that their numbers don't touch
ABOVE = {"speedup": "speed-up X(N) / X(1)", "scaling_efficiency": "scaling efficiency X(N) / (N X(1))"}
ABOVE |= {"utilization_percent": "utilisation in %", "epoch_time_s": "epoch time in s"}


LINEAR: dict[str, Any] = {"line_width": 6, "line_alpha": 0.3, "name": "linear"}  # launchers have all the dashes
POINTS_OF_A_CURVE = 60
DRAWN = ("speedup", "scaling_efficiency", "utilization_percent", "predicted_epoch_time_s", "epoch_time_s")
OF_CELLS = ("cell", "repeats", "spread", "speedup_spread", "verdict", "limited_by", "note", "colour", "mark")


class Views:
    """Views by name, and what they share."""

    def __init__(self, planned: Sequence[int], predicted: Sequence[int], settings: FigureConfig) -> None:
        """
        Args:
            planned: numbers of devices of the experiment's trials.
            predicted: those of its predictions, which may go far beyond.
        """
        from bokeh.models import AllIndices, CDSView

        self.planned = sorted(set(planned)) or [1]  # no trial at all: axes for the page that says so
        self.all_devices = sorted({*self.planned, *predicted})
        self.settings = settings
        self.cells = _source("cells", [*OF_CELLS, *_with_ends(*DRAWN), "place"])
        self.lines = _source("lines", ["places", *DRAWN, "colour", "dash"])
        self.bars = _source("bars", ["cell", "label", "rounds", *_with_ends("step"), *PARTS, *_sides(PARTS)])
        self.pointed = _source("pointed", ["place", *DRAWN])
        self.shown = CDSView(filter=AllIndices(), name="shown")

    def all(self) -> dict[str, Plot]:
        plots = {
            "speedup": self.over_devices("speedup", "speedup_spread"),
            "efficiency": self.over_devices("scaling_efficiency", "speedup_spread"),
            "utilization": self.over_devices("utilization_percent", "spread"),
            "causes": self.causes(),
            "prediction": self.prediction(),
        }
        for plot in plots.values():
            for renderer in plot.renderers:
                _keep_few_looks(renderer)
        return plots

    def over_devices(self, column: str, spread: str) -> Plot:
        """Lines of a column over N, with its low and high; and what linear scaling would be."""
        plot = self._frame(ABOVE[column], self.planned, is_log=column == "speedup")
        devices = np.geomspace(self.planned[0], self.planned[-1], POINTS_OF_A_CURVE).tolist()  # the axis is logarithmic
        if column == "speedup":
            plot.line(devices, devices, **LINEAR)
        elif column == "scaling_efficiency":
            plot.line(devices, [1.0] * len(devices), **LINEAR)
        self._lines(plot, column)
        self._interval(plot, column)
        points = self._points(plot, column)
        self._tooltip(
            plot,
            points,
            f"@{column}{{0.000}} (@{column}_low{{0.000}} to @{column}_high{{0.000}})<br>n = @repeats, @{spread}",
        )
        return plot

    def prediction(self) -> Plot:
        """Epoch times over N: predicted ones as bands that 80 % of launches should keep to, measured ones as points."""
        plot = self._frame(ABOVE["epoch_time_s"], self.all_devices)
        plot.segment(
            "place",
            "predicted_epoch_time_s_low",
            "place",
            "predicted_epoch_time_s_high",
            source=self.cells,
            view=self.shown,
            line_width=9,
            line_color="colour",
            line_alpha=0.3,
            nonselection_line_alpha=FADED / 2,
        )
        self._lines(plot, "predicted_epoch_time_s")
        predicted = plot.scatter(
            "place",
            "predicted_epoch_time_s",
            source=self.cells,
            view=self.shown,
            marker="dash",
            size=14,
            line_width=3,
            line_color="colour",
            nonselection_line_alpha=FADED,
        )
        self._ring(plot, "predicted_epoch_time_s")
        self._interval(plot, "epoch_time_s")
        points = self._points(plot, "epoch_time_s")
        measured = (
            "@epoch_time_s{0.000} s (@epoch_time_s_low{0.000} to @epoch_time_s_high{0.000}), n = @repeats, @spread"
        )
        self._tooltip(plot, points, f"measured: {measured}")
        bounds = "@predicted_epoch_time_s_low{0.000} to @predicted_epoch_time_s_high{0.000}"
        self._tooltip(
            plot,
            predicted,
            f"predicted: @predicted_epoch_time_s{{0.000}} s ({bounds}: 4 of 5 launches)<br>@verdict<br>limited by @limited_by",
        )
        return plot

    def causes(self) -> Plot:
        """A bar per explained cell: parts of a step from left to right, those below zero to the left of it."""
        from bokeh.models import FactorRange, HoverTool, TapTool

        plot = _empty(
            y_range=FactorRange(factors=[], name="causes_range"),
            x_axis_label="time per step in ms",
            name="causes",
        )
        plot.ygrid.visible = False
        plot.xaxis.ticker.desired_num_ticks = 4  # beside names of cells a phone has little room
        colour_of = part_colours(self.settings)
        bars = []
        for part, name in PARTS.items():
            bar = plot.hbar(
                y="label",
                left=f"{part}_left",
                right=f"{part}_right",
                height=0.72,
                source=self.bars,
                fill_color=_hex(colour_of[part]),
                hatch_pattern=hatch_of(part)[:1] or None,  # one of the same sign in Bokeh
                hatch_color="white",
                hatch_alpha=0.8,
                hatch_scale=8,
                line_color=None,
                nonselection_fill_alpha=FADED,
                nonselection_hatch_alpha=FADED,
                name=part,
            )
            bars.append(bar)
            text = f"{name}: @{part}{{0.00}} ms of @step{{0.00}} (@step_low{{0.00}} to @step_high{{0.00}})"
            plot.add_tools(HoverTool(renderers=[bar], tooltips=_tip(f"{text}<br>@rounds rounds")))
        plot.segment(
            "step_low", "label", "step_high", "label", source=self.bars, line_width=1.5, **_whole("step_interval")
        )
        plot.scatter("step", "label", source=self.bars, marker="diamond", size=12, **_whole("step"))
        plot.add_tools(TapTool(renderers=bars))
        return plot

    def _frame(self, label: str, devices: Sequence[int], is_log: bool = False) -> Any:
        """Empty axes over N, the upright one logarithmic, too, where it grows like N."""
        from bokeh.models import DataRange1d, FixedTicker, LogTicker, NumeralTickFormatter, Range1d

        plot = _empty(
            x_axis_type="log",
            x_range=Range1d(start=devices[0] / 1.3, end=devices[-1] * 1.3),
            y_axis_type="log" if is_log else "linear",
            y_range=DataRange1d(range_padding=0.12),
            x_axis_label="devices N",
            y_axis_label=label,
        )
        plot.xaxis.ticker = FixedTicker(ticks=_apart(devices))
        plot.xgrid.ticker = plot.xaxis[0].ticker
        plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
        if is_log:
            plot.yaxis.ticker = LogTicker(mantissas=[1, 2, 5])
            plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
        else:
            plot.y_range.start = 0
        return plot

    def _lines(self, plot: Any, column: str) -> None:
        plot.multi_line(
            "places", column, source=self.lines, line_color="colour", line_dash="dash", line_width=1.5, line_alpha=0.8
        )

    def _interval(self, plot: Any, column: str) -> None:
        plot.segment(
            "place",
            f"{column}_low",
            "place",
            f"{column}_high",
            source=self.cells,
            view=self.shown,
            line_width=2,
            line_color="colour",
            nonselection_line_alpha=FADED,
        )

    def _points(self, plot: Any, column: str) -> Any:
        """Marks that can be pointed at and chosen, each with the outline that tells light colours from the ground."""
        from bokeh.models import TapTool

        points = plot.scatter(
            "place",
            column,
            source=self.cells,
            view=self.shown,
            marker="mark",
            size=11,
            fill_color="colour",
            selection_line_width=2.5,
            nonselection_fill_alpha=FADED,
            nonselection_line_alpha=FADED,
            name="points",
        )
        self._ring(plot, column)
        plot.add_tools(TapTool(renderers=[points]))
        return points

    def _ring(self, plot: Any, column: str) -> None:
        """Around the cell that the reader points at, here or elsewhere."""
        plot.scatter(
            "place", column, source=self.pointed, marker="circle", size=22, fill_color=None, line_width=2.5, name="ring"
        )

    def _tooltip(self, plot: Any, points: Any, text: str) -> None:
        from bokeh.models import HoverTool

        plot.add_tools(HoverTool(renderers=[points], tooltips=_tip(f"{text}<br>@note")))


def _keep_few_looks(renderer: Any) -> None:
    """Bokeh prepares each look that a glyph may take at every change of its data: leave out those that are as the usual one."""
    renderer.muted_glyph = None
    if renderer.selection_glyph == "auto":
        renderer.selection_glyph = None


def _empty(**axes: Any) -> Any:
    """A plot as wide as there is room, on the page's own ground, without tools that would hold up a finger that scrolls."""
    from bokeh.plotting import figure

    plot = figure(height=HEIGHT_PX, sizing_mode="stretch_width", toolbar_location=None, tools="", **axes)
    plot.background_fill_color = plot.border_fill_color = plot.outline_line_color = None
    return plot


def _source(name: str, columns: Iterable[str]) -> ColumnDataSource:
    """Its columns, without rows."""
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(name=name, data={column: [] for column in columns})


def _with_ends(*columns: str) -> list[str]:
    return [f"{column}{end}" for column in columns for end in ("", "_low", "_high")]


def _sides(columns: Iterable[str]) -> list[str]:
    return [f"{column}_{side}" for column in columns for side in ("left", "right")]


def _whole(name: str) -> dict[str, Any]:
    """The mark of a whole step is as strong on every bar; the page gives it its colour."""
    return {"name": name, "selection_line_alpha": 1, "nonselection_line_alpha": 1}


def _tip(text: str) -> str:
    return f'<div class="tip"><strong>@cell</strong><br>{text}</div>'


def _apart(devices: Sequence[int]) -> list[int]:
    """Numbers of devices that have room for a number each."""
    ticks: list[int] = []
    for count in devices:
        if not ticks or count >= LEAST_RATIO * ticks[-1]:
            ticks.append(count)
    return ticks


def _hex(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return str(to_hex(colour))
