"""Pairs of strategies: which is faster, and whether the difference is more than noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    Tables,
    foot,
    is_narrow,
    is_placebo,
    lines_of,
    outliers_kept,
    reach_of,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

VERDICT_LETTERS = 18  # on one line
MOST_PAIRS = 40  # that a page holds; the table has all
RULE = "Filled: a difference that is shown, by Mann and Whitney's test (5 %, Holm) and by the interval of the ratio."


def differences(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A row per pair: the ratio of their throughputs and its interval, over a band of what the placebo lets in."""
    summary, pairs = tables["summary"], tables["comparisons"]
    shown = pairs.sort_values(["devices", "nodes", "launcher"], kind="stable").head(MOST_PAIRS).reset_index(drop=True)
    rows: list[Any] = list(shown.itertuples())
    names = [
        wrapped(f"{pair.strategy} / {pair.other}, {pair.launcher} {pair.nodes}x{pair.devices_per_node}")
        for pair in rows
    ]
    verdicts = [wrapped(str(pair.verdict), VERDICT_LETTERS) for pair in rows]
    row_inches = 0.22 * lines_of([*names, *([] if is_narrow(settings) else verdicts)])
    figure.set_figheight(max(figure.get_figheight(), (row_inches * len(shown) + 2.2) * settings.font_size_pt / 9))
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
    axes.set_xlabel(narrow if is_narrow(settings) else wide)
    notes = []
    if shown.empty:
        axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)
        axes.set_axis_off()
        notes.append("No two strategies were measured on one topology by one launcher.")
    if len(pairs) > len(shown):
        notes.append(f"{len(pairs) - len(shown)} more pairs: see comparisons.csv.")
    drawn = f"{ratios(shown)}{outliers_kept(summary[summary.status == 'ok'])}" if len(shown) else ""
    foot(figure, summary, settings, drawn, notes)


def ratios(pairs: pd.DataFrame) -> str:
    """What points, bars and fills are, of pairs of cells."""
    return f"Points: ratio of medians; {reach_of(pairs.spread)}. {RULE}"
