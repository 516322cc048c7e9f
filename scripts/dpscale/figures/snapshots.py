"""Two result sets: which cells became faster or slower, and whether the difference is more than noise."""

from __future__ import annotations

from textwrap import shorten
from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.differences import ratios
from dpscale.figures.drawing import GREY, Tables, cell_name, entitle, in_print, write_foot

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_CELLS = 60  # that a page holds; the table has all
SHOWN_FIRST = {"slower": 0, "faster": 1}  # verdicts that a reader looks for


def changes(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A row per cell, those that changed first: throughput after over throughput before, with its interval and verdict."""
    cells, facts = tables["changes"], tables["environment_changes"]
    before, after = (str(cells[name].iloc[0]) for name in ("set_before", "set_after"))
    if not in_print(figure):
        both = " to ".join(text.partition(", ")[0] for text in (before, after))
        entitle(figure, f"{figure.get_suptitle()}\n{shorten(both, 70)}", settings)
    cells = cells.sort_values("verdict", key=lambda verdicts: verdicts.map(SHOWN_FIRST).fillna(2), kind="stable")
    shown = cells.head(MOST_CELLS).reset_index(drop=True)
    figure.set_figheight(max(figure.get_figheight(), (0.22 * len(shown) + 2.2) * settings.font_size_pt / 9))
    axes = figure.subplots()
    axes.grid(axis="y", visible=False)
    axes.axvline(1.0, color=GREY, zorder=0)
    rows: list[Any] = list(shown[shown.throughput_ratio.notna()].itertuples())
    for cell in rows:
        value, low, high = cell.throughput_ratio, cell.throughput_ratio_low, cell.throughput_ratio_high
        colour, inside = ("0.1", "0.1") if cell.verdict in SHOWN_FIRST else (GREY, "white")
        bars = [[value - low], [high - value]]
        axes.errorbar(value, cell.Index, xerr=bars, marker="o", color=colour, markerfacecolor=inside, capsize=2)
    several = shown.experiment.nunique() > 1
    names = [(f"{cell.experiment}/" if several else "") + cell_name(cell) for cell in shown.itertuples()]
    axes.set_yticks(range(len(shown)), names)
    axes.secondary_yaxis("right").set_yticks(range(len(shown)), [shorten(text, 40) for text in shown.verdict])
    axes.set_ylim(max(1, len(shown)) - 0.5, -0.5)
    axes.set_xlabel("throughput after / throughput before")
    sets = [f"Before: {before}.", f"After: {after}."]
    write_foot(figure, [*sets, *_notes(cells, facts)], settings, "changes.csv and environment_changes.csv")


def _notes(cells: pd.DataFrame, facts: pd.DataFrame) -> list[str]:
    """What else is not the same, first; then what points are."""
    notes = [
        f"Not the same: {row.fact}: {_short(row.before)} before, {_short(row.after)} after."
        for row in facts.itertuples()
    ]
    notes = notes or ["No recorded fact of the environment differs."]
    if cells.spread.notna().any():
        notes.append(ratios(cells))
    different = cells[cells.differs_in.notna()]
    notes += [f"Other settings: {cell_name(cell)}: {cell.differs_in}." for cell in different.itertuples()]
    if len(cells) > MOST_CELLS:
        left_out = cells.verdict[MOST_CELLS:].str.partition(":")[0].value_counts()
        counted = ", ".join(f"{count} {verdict}" for verdict, count in left_out.items())
        notes.append(f"Cells that are not drawn: {counted}; see changes.csv.")
    return notes


def _short(value: object) -> str:
    return "not recorded" if value != value or value is None else shorten(str(value), 60, placeholder=" ...")
