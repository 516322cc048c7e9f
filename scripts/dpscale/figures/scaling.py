"""Figures over N, the number of devices: a line for each strategy, launcher and number of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    Tables,
    cell_name,
    foot,
    legend,
    medians_of_launches,
    over_devices,
    seconds,
)
from dpscale.words import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def speedup(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    summary = tables["summary"]
    axes = figure.subplots()
    over_devices(axes, summary, "speedup", settings)
    ticks = sorted(summary.devices.unique())
    axes.plot(ticks, ticks, color=GREY, linestyle=":", label="linear", zorder=0)
    axes.set_ylabel("speed-up X(N) / X(1)")
    axes.set_ylim(0, None)
    legend(axes)
    foot(figure, summary, settings, _over_base(summary))


def efficiency(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    summary = tables["summary"]
    axes = figure.subplots()
    over_devices(axes, summary, "scaling_efficiency", settings)
    axes.axhline(1.0, color=GREY, linestyle=":", label="linear", zorder=0)
    axes.set_ylabel("scaling efficiency X(N) / (N X(1))")
    axes.set_ylim(0, None)
    legend(axes)
    foot(figure, summary, settings, _over_base(summary))


def _over_base(summary: pd.DataFrame) -> str:
    """What points and bars are, and over which base."""
    medians = medians_of_launches(summary, spread="speedup_spread")
    bases = [base for base in dict.fromkeys(summary.base_cell[summary.status == "ok"].fillna("")) if base]
    over = f"Base: {', '.join(bases)}." if bases else "No cell on one device: no base, so n/a."
    return f"{medians} {over}" if medians else ""


def epoch_time(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """The least time of each line is ringed; what more devices take, and the wrapper on one device, is put in words."""
    summary = tables["summary"]
    axes = figure.subplots()
    notes: list[str] = []
    for label, cells, places, style in over_devices(axes, summary, "epoch_time_s", settings):
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
        more = [f"{seconds(cell.epoch_time_s)} on {cell.devices}" for cell in cells[least + 1 :].itertuples()]
        rise = f"; more of them take longer: {', '.join(more)}" if more else ", the most that were measured"
        fastest = cells.iloc[least]
        notes.append(
            f"{label}: least on {counted(int(fastest.devices), 'device')}, {seconds(fastest.epoch_time_s)}{rise}."
        )
    axes.set_ylabel("epoch time in s (training)")
    axes.set_ylim(0, None)
    legend(axes)
    foot(figure, summary, settings, medians_of_launches(summary), notes)


def _on_one_device(label: str, cells: pd.DataFrame, summary: pd.DataFrame) -> Iterator[str]:
    """What a strategy costs where there is nobody to exchange anything with."""
    for cell in cells[(cells.devices == 1) & (cells.base != "single")].itertuples():
        for base in summary.itertuples():
            if cell_name(base) == cell.base_cell != cell_name(cell):
                yield (
                    f"{label} on one device: {seconds(cell.epoch_time_s)}, {base.strategy} {seconds(base.epoch_time_s)}; "
                    f"{cell.speedup:.2f} times as fast ({cell.speedup_low:.2f} to {cell.speedup_high:.2f})."
                )


def evaluation(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    summary = tables["summary"]
    axes = figure.subplots()
    over_devices(axes, summary, "evaluation_throughput_samples_per_s", settings)
    axes.set_ylabel("test samples per second")
    axes.set_ylim(0, None)
    legend(axes)
    foot(figure, summary, settings, medians_of_launches(summary))
