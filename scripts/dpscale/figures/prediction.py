"""What more devices will take: predictions with their intervals, simpler laws, and what was measured; and of what it is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.drawing import (
    GREY,
    Tables,
    colours,
    held,
    is_narrow,
    left_out,
    rounded,
    seconds,
    smaller,
    worded,
    write_foot,
)
from dpscale.figures.parts import part_looks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS_MODEL = "measured parts"
KNEE_EFFICIENCY = 0.5
PARTS = {
    "compute_s": "compute",
    "contention_s": "contention",
    "compression_s": "compression",
    "stretch_s": "stretch",
    "exposed_communication_s": "exposed communication",
    "straggler_s": "stragglers",
}
LAW_LOOKS = {  # (line, marker): laws lie close together, and are told apart in grey print
    "ideal": (":", None),
    "frozen_efficiency": ("--", None),
    "amdahl": ("-.", "v"),
    "gustafson": ((0, (8, 2, 1, 2, 1, 2)), None),
    "universal_scalability": ((0, (1, 4)), "s"),
    "logarithm": ((0, (8, 4)), "x"),
}
MOST_LETTERS = 24  # of all names below bars that are side by side
NOTHING = "n/a: nothing is predicted in this experiment (prediction.calibrate_up_to in its configuration)"
LOW_PANEL_INCHES = 1.4  # what a panel needs at least, with its title and numbers
MOST_SHOWN = 4  # of lines about single topologies


def prediction(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """Two panels for each strategy and launcher: epoch times over N, and the parts of a step."""
    table = tables["prediction"]
    current = table[table.current]
    if current.empty:
        axes = figure.subplots()
        axes.axis("off")
        axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)
        write_foot(figure, [NOTHING], settings, "prediction.csv")
        return
    groups = list(current.groupby(["strategy", "launcher"], sort=False))
    pairs_inches = LOW_PANEL_INCHES * (2 if is_narrow(settings) else 1)
    more = len(groups) - held(figure, len(groups), pairs_inches, other_inches=1.2)
    groups = groups[: len(groups) - more]
    panels = 2 * len(groups) if is_narrow(settings) else len(groups)
    crowded = any(_is_crowded(rows[rows.model == PARTS_MODEL]) for _, rows in groups)
    figure.set_figheight(figure.get_figheight() * (0.6 + (0.7 if crowded else 0.65) * panels))
    all_axes = figure.subplots(panels, 2 * len(groups) // panels, squeeze=False).reshape(len(groups), 2)
    notes = left_out(2 * more, "panel", "prediction.csv")
    for (times, parts), ((strategy, launcher), rows) in zip(all_axes, groups, strict=True):
        ours = rows[rows.model == PARTS_MODEL].sort_values(["devices", "nodes"])
        _times(times, ours, rows[rows.model != PARTS_MODEL], settings)
        _parts(parts, ours, settings)
        times.set_title(f"{strategy}, {launcher}")
        notes += _notes(f"{strategy}, {launcher}" if len(groups) > 1 else str(strategy), ours)
    for axes in all_axes[-1]:
        _legend_below(axes, (6.5 if crowded else 4.0) * settings.font_size_pt, settings)
    up_to = ", ".join(str(count) for count in sorted(set(current.calibrated_up_to)))
    head = f"Calibrated from trials on up to {up_to} devices; bands: where 80 % of launches should be; points: medians of launches."
    write_foot(figure, [head, *notes], settings, "prediction.csv")


def _legend_below(axes: Axes, distance_pt: float, settings: FigureConfig) -> None:
    """As far below whatever the height of the axes, which the layout finds only then."""
    from matplotlib.transforms import ScaledTranslation

    figure = axes.figure
    below = axes.transAxes + ScaledTranslation(0, -distance_pt / 72, figure.dpi_scale_trans)
    axes.legend(
        frameon=False,
        fontsize=smaller(settings, 2),
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=below,
        ncols=2,
    )


def _times(axes: Axes, ours: pd.DataFrame, laws: pd.DataFrame, settings: FigureConfig) -> None:
    colour = colours([PARTS_MODEL], settings)[PARTS_MODEL]
    line = ours.drop_duplicates("devices")  # of topologies with as many devices the one on fewest nodes
    axes.fill_between(
        line.devices, line.predicted_epoch_time_s_low, line.predicted_epoch_time_s_high, color=colour, alpha=0.25
    )
    axes.plot(line.devices, line.predicted_epoch_time_s, color=colour, label="predicted")
    others = ours.drop(line.index)
    if len(others):
        ends = (others.predicted_epoch_time_s_low, others.predicted_epoch_time_s_high)
        axes.errorbar(
            others.devices,
            others.predicted_epoch_time_s,
            yerr=[abs(end - others.predicted_epoch_time_s) for end in ends],
            fmt="D",
            markersize=3.5,
            color=colour,
            zorder=3,  # before what was measured there
            label="predicted, on more nodes",
        )
    for name, rows in laws.groupby("model", sort=False):
        each = rows.sort_values("devices").drop_duplicates("devices")
        dashes, marker = LAW_LOOKS[str(name)]
        axes.plot(
            each.devices,
            each.predicted_epoch_time_s,
            color=GREY,
            linestyle=dashes,
            marker=marker,
            markersize=4,
            linewidth=1,
            label=worded(str(name)),
        )
    last, beyond = _knee(ours)
    if last is not None and beyond is not None:
        label = f"knee: efficiency {KNEE_EFFICIENCY:g}"
        axes.axvline(last.devices, color=colour, linestyle="--", linewidth=1, label=label)
    found = ours[ours.measured_epoch_time_s.notna()]
    errors = [
        found.measured_epoch_time_s - found.measured_epoch_time_s_low,
        found.measured_epoch_time_s_high - found.measured_epoch_time_s,
    ]
    for rows, fill, label in (
        (found[found.calibrating], "full", "calibrated from"),
        (found[~found.calibrating], "none", "measured"),
    ):
        bars = [error[rows.index] for error in errors]
        axes.errorbar(
            rows.devices,
            rows.measured_epoch_time_s,
            yerr=bars,
            fmt="o",
            fillstyle=fill,
            color="black",
            capsize=3,
            label=label if len(rows) else None,
        )
    _over_devices(axes, ours)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: rounded(value))
    axes.yaxis.set_minor_formatter(lambda value, _: rounded(value) if str(value).strip("0.")[:1] in "25" else "")
    axes.set_ylabel("epoch time in s (training)")


def _over_devices(axes: Axes, ours: pd.DataFrame) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    axes.set_xscale("log", base=2)
    ticks = sorted(ours.devices.unique())
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter([str(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("devices N")


def _parts(axes: Axes, ours: pd.DataFrame, settings: FigureConfig) -> None:
    names = _names(ours)
    looks = part_looks(settings)
    below = 0 * ours.compute_s
    for part, label in PARTS.items():
        if (ours[part] > 0).any():
            axes.bar(names, ours[part], bottom=below, label=label, **looks[part])
            below = below + ours[part]
    axes.set_ylabel("predicted step in s")
    axes.set_xlabel("nodes x devices per node")
    if _is_crowded(ours):
        axes.tick_params(axis="x", rotation=90)


def _names(ours: pd.DataFrame) -> list[str]:
    return [_topology(row) for row in ours.itertuples()]


def _is_crowded(ours: pd.DataFrame) -> bool:
    return sum(map(len, _names(ours))) > MOST_LETTERS


def _topology(row: Any) -> str:
    return f"{row.nodes}x{row.devices_per_node}"


def _knee(ours: pd.DataFrame) -> tuple[Any | None, Any | None]:
    """(The topology with the most devices at a good efficiency, the one with the fewest beyond), each None if there is none."""
    is_good = ours.scaling_efficiency >= KNEE_EFFICIENCY
    good, beyond = ours[is_good], ours[~is_good]
    return (
        good.iloc[good.devices.argmax()] if len(good) else None,
        beyond.iloc[beyond.devices.argmin()] if len(beyond) else None,
    )


def _limit(row: Any) -> str:
    share = "" if row.limited_by_share != row.limited_by_share else f", which takes {rounded(row.limited_by_share)}"
    return f"limited by {worded(row.limited_by)}{share}"


def _notes(label: str, ours: pd.DataFrame) -> Iterator[str]:
    """The knee, what limits it, and what came true."""
    last, first = _knee(ours)
    if last is not None and first is not None:
        yield (
            f"{label}: scaling efficiency is {rounded(last.scaling_efficiency)} on {_topology(last)} and "
            f"{rounded(first.scaling_efficiency)} on {_topology(first)}, {_limit(first)}."
        )
    elif last is not None:
        yield (
            f"{label}: scaling efficiency is still {rounded(last.scaling_efficiency)} on {_topology(last)}, {_limit(last)}."
        )
    judged = list(ours[ours.verdict.isin(["hit", "miss"])].itertuples())
    for row in judged[:MOST_SHOWN]:
        when = "" if row.in_advance else ", predicted after it was measured"
        yield (
            f"{label} on {_topology(row)}: predicted {seconds(row.predicted_epoch_time_s)}, measured "
            f"{seconds(row.measured_epoch_time_s)} ({row.error_percent:+.1f} %, {row.verdict}{when}: {_width(row)})."
        )
    if len(judged) > MOST_SHOWN:
        hits = sum(row.verdict == "hit" for row in judged)
        widest = max(judged, key=_factor)
        yield f"{label}: {hits} of {len(judged)} within their intervals, of which {_topology(widest)} has the widest: {_width(widest)}."


def _factor(row: Any) -> float:
    return float(row.predicted_epoch_time_s_high / row.predicted_epoch_time_s_low)


def _width(row: Any) -> str:
    """A hit within a wide interval says little."""
    ends = seconds(row.predicted_epoch_time_s_low), seconds(row.predicted_epoch_time_s_high)
    return f"interval {' to '.join(ends)}, a factor of {_factor(row):.3g}"
