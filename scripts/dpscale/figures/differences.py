"""Pairs of strategies: which is faster, and whether the difference is more than noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    Tables,
    foot,
    held,
    in_print,
    is_narrow,
    is_placebo,
    label_x,
    left_out,
    lines_of,
    outliers_kept,
    reach_of,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

VERDICT_LETTERS = 18  # on one line
LOW_LINE_INCHES = 0.15  # from one line of a name to the next in print, of text of 9 pt
MOST_PAIRS = 40  # that a page holds; the table has all
RULE = "Filled: a difference that is shown, by Mann and Whitney's test (5 %, Holm) and by the interval of the ratio."


def differences(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A row per pair: the ratio of their throughputs and its interval, over a band of what the placebo lets in."""
    summary, pairs = tables["summary"], tables["comparisons"]
    ordered = pairs.sort_values(["devices", "nodes", "launcher"], kind="stable").head(MOST_PAIRS).reset_index(drop=True)
    rows: list[Any] = list(ordered.itertuples())
    names = [
        wrapped(f"{pair.strategy} / {pair.other}, {pair.launcher} {pair.nodes}x{pair.devices_per_node}")
        for pair in rows
    ]
    verdicts = [wrapped(str(pair.verdict), VERDICT_LETTERS) for pair in rows]
    scale = settings.font_size_pt / 9
    lines = lines_of([*names, *([] if is_narrow(settings) else verdicts)])
    row_inches = scale * (LOW_LINE_INCHES * lines + 0.03 if in_print(figure) else 0.22 * lines)
    other_inches = scale * (0.8 if in_print(figure) else 2.2)
    shown = ordered.head(held(figure, len(ordered), row_inches, other_inches))
    rows, names, verdicts = rows[: len(shown)], names[: len(shown)], verdicts[: len(shown)]
    figure.set_figheight(max(figure.get_figheight(), row_inches * len(shown) + other_inches))
    axes = figure.subplots()
    axes.grid(axis="y", visible=False)
    for floor_percent in summary.noise_floor_percent[is_placebo(summary)].dropna():
        within = 1 + floor_percent / 100
        axes.axvspan(1 / within, within, color="0.9", zorder=0)
    axes.axvline(1.0, color=GREY, zorder=0)
    for pair in rows:
        value, low, high = pair.throughput_ratio, pair.throughput_ratio_low, pair.throughput_ratio_high
        colour, inside = ("0.1", "0.1") if pair.verdict in ("faster", "slower") else (GREY, "white")
        axes.errorbar(
            value,
            pair.Index,
            xerr=[[value - low], [high - value]],
            marker="o",
            color=colour,
            markerfacecolor=inside,
            capsize=2,
        )
    axes.set_yticks(range(len(shown)), names)
    if len(shown) and not is_narrow(settings):  # else the fill says it, and the table
        axes.secondary_yaxis("right").set_yticks(range(len(shown)), verdicts)
    axes.set_ylim(max(1, len(shown)) - 0.5, -0.5)
    narrow, wide = "throughput, first / second", "throughput of the first / throughput of the second"
    label_x(axes, narrow if is_narrow(settings) else wide, settings)
    notes = []
    if shown.empty:
        axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)
        axes.set_axis_off()
        notes.append("No two strategies were measured on one topology by one launcher.")
    notes += left_out(len(pairs) - len(shown), "pair", "comparisons.csv")
    drawn = f"{ratios(shown)}{outliers_kept(summary[summary.status == 'ok'])}" if len(shown) else ""
    foot(figure, summary, settings, drawn, notes)


def ratios(pairs: pd.DataFrame) -> str:
    """What points, bars and fills are, of pairs of cells."""
    return f"Points: ratio of medians; {reach_of(pairs.spread)}. {RULE}"
