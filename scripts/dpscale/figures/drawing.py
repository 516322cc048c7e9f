"""What all figures share: style, colours, lines over N, legend, and the foot that says what was not measured.

Plotting libraries are imported where they draw: Snakemake reads FIGURES at every start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill, shorten
from typing import TYPE_CHECKING, Any

from dpscale.config import ExperimentConfig, FigureConfig
from dpscale.words import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text


MM_PER_INCH = 25.4
PAGE_MM = 247.0  # as high as a page of a journal is: no figure for print is higher
MARKERS = "osD^vPX<>ph*"
# of series; dotted is what they are compared with: linear scaling, a limit, the 99th percentile
LINES: list[Any] = ["-", "--", "-.", (0, (6, 1.5, 1, 1.5, 1, 1.5))]
GREY = "0.45"
FOOT_LINES = 24  # entries below a figure, which grows for them
ROOM_LINES = 6  # lines that it has room for as it is
LEAST_PT = 6.0  # what is smaller can't be read in print
NARROW_MM = 120.0  # a figure below this has its legend under the axes, and its panels below each other
NAME_LETTERS = 32  # of a name at an axis on one line
MOST_BESIDE = 16  # entries of a legend beside the axes of a figure for print
NO_SPREAD = "one value"  # as tables say of what was launched once
Tables = dict[str, "pd.DataFrame"]


def always(experiment: ExperimentConfig) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class FigureRow:
    """One row of FIGURES."""

    question: str  # its title
    tables: tuple[str, ...]  # that it reads
    draw: Callable[[Figure, Tables, FigureConfig], None]  # on an empty figure
    # experiments that are to have it; to others it has nothing to say
    is_for: Callable[[ExperimentConfig], bool] = always

    @property
    def source(self) -> str:
        """The table that it names as its origin: that of all records, or its own, where it is of no trials."""
        return "records" if "summary" in self.tables else self.tables[0]


def style(name: str, settings: FigureConfig) -> dict[Any, Any]:
    return {
        "font.size": settings.font_size_pt,
        "axes.titlesize": settings.font_size_pt + 1,
        "legend.fontsize": smaller(settings, 1),
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


def series(summary: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(label, cells) of every line over N: a strategy under a launcher on a number of nodes."""
    several_launchers, several_precisions = summary.launcher.nunique() > 1, summary.precision.nunique() > 1
    for (strategy, launcher, nodes), cells in summary.groupby(["strategy", "launcher", "nodes"], sort=False):
        label = f"{strategy}, {launcher}" if several_launchers and cells.base.iloc[0] != "single" else str(strategy)
        label += f": {cells.placebo_of.iloc[0]} again" if is_placebo(cells).any() else ""
        label += f", {cells.precision.iloc[0]}" if several_precisions else ""
        yield label + (f", {nodes} nodes" if cells.nodes.iloc[0] > 1 else ""), cells.sort_values("devices")


def is_placebo(summary: pd.DataFrame) -> pd.Series:
    """Which cells measure another one again."""
    return summary.placebo_of.fillna("") != ""


def colours(names: list[str], settings: FigureConfig) -> dict[str, tuple]:
    import seaborn as sns

    distinct = len(sns.color_palette(settings.palette))  # beyond them seaborn would begin again
    palette = sns.color_palette(settings.palette if len(names) <= distinct else "husl", len(names))
    return dict(zip(names, palette, strict=True))


def styles(summary: pd.DataFrame, settings: FigureConfig) -> Iterator[tuple[str, pd.DataFrame, dict]]:
    """Series with a colour by strategy, and a marker and line of their own: they survive a grey print. No strategy but the
    placebo is grey."""
    colour_of = colours(list(dict.fromkeys(summary.strategy[~is_placebo(summary)])), settings)
    for index, (label, cells) in enumerate(series(summary)):
        yield (
            label,
            cells,
            {
                "color": colour_of.get(cells.strategy.iloc[0], GREY),
                "marker": MARKERS[index % len(MARKERS)],
                "linestyle": LINES[index % len(LINES)],
            },
        )


def over_devices(
    axes: Axes, summary: pd.DataFrame, column: str, settings: FigureConfig
) -> list[tuple[str, pd.DataFrame, pd.Series, dict]]:
    """Lines of a column over N with its low and high, and x ticks at the N that were measured.

    Returns:
        (label, cells, where their points are along N, style) of each line.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    all_series = [(label, cells[cells[column].notna()], style) for label, cells, style in styles(summary, settings)]
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


def medians_of_launches(
    summary: pd.DataFrame, drawn: str = "Points", bars: str = "bars", spread: str | None = "spread"
) -> str:
    """What is drawn of launches, as the first sentence of a figure's foot; empty where nothing was measured.

    Args:
        drawn: what has the medians.
        bars: what reaches from low to high.
        spread: the column of what low and high are; None where they are always the range.
    """
    good = summary[summary.status == "ok"]
    if good.empty:
        return ""
    if spread is None:
        reach = f"{bars}: their range" if good.repeats.max() > 1 else f"no {bars}"
    else:
        reach = reach_of(good[spread], bars)
    return f"{drawn}: {_medians(good)}; {reach}.{outliers_kept(good)}"


def _medians(good: pd.DataFrame) -> str:
    least, most = good.repeats.min(), good.repeats.max()
    if most == 1:
        return "1 launch of each cell"
    return f"median of {most if least == most else f'{least}-{most}'} launches"


def reach_of(spreads: pd.Series, bars: str = "bars") -> str:
    """What bars reach over, by the column that says so: of one value there are none."""
    kinds = [kind for kind in dict.fromkeys(spreads.dropna().astype(str)) if kind != NO_SPREAD]
    return f"{bars}: {', '.join(kinds)}" if kinds else f"no {bars}"


def outliers_kept(good: pd.DataFrame) -> str:
    return f" Outliers, kept: {good.outliers.sum():.0f}." if good.outliers.any() else ""


def foot(
    figure: Figure, summary: pd.DataFrame, settings: FigureConfig, drawn: str = "", notes: Sequence[str] = ()
) -> None:
    """Below the axes: what is drawn, notes, warnings, and what was not measured and why.

    Args:
        drawn: what points, bars, lines are, and the medians of what; each figure has its own. Empty where there are none.
    """
    good = summary[summary.status == "ok"]
    lines = [*([drawn] if drawn else []), *noise_floor(good), *notes]
    for status, cells in summary[summary.status != "ok"].groupby("status", sort=False):
        for reason, those in cells.groupby("reason", sort=False):
            names = ", ".join(cell_name(cell) for cell in those.itertuples())
            lines.append(f"{str(status).capitalize()}: {shorten(names, 110, placeholder=' ...')} ({reason})")
    warned = good[good.warnings.fillna("") != ""]
    for kind, cells in warned.groupby(warned.warnings.map(_without_numbers), sort=False):
        names = ", ".join(cell_name(cell) for cell in cells.itertuples())
        text = cells.warnings.iloc[0] if cells.warnings.nunique() == 1 else f"{kind} (more in summary.csv)"
        lines.append(f"Warning: {text}: {shorten(names, 110, placeholder=' ...')}")
    write_foot(figure, lines, settings, "summary.csv")


def write_foot(figure: Figure, lines: Sequence[str], settings: FigureConfig, table: str) -> None:
    """Lines of text below the axes, for which the figure grows; `table` has those that there is no room for. A figure
    without a title has them in its caption."""
    figure.set_label("\n".join(lines))
    if in_print(figure):
        return
    size_pt = smaller(settings, 2)
    letters = int(settings.width_mm / MM_PER_INCH * 72 / (0.58 * size_pt))  # that fit on a line
    shown = [*lines[:FOOT_LINES]]
    if len(lines) > FOOT_LINES:
        shown.append(f"... and {len(lines) - FOOT_LINES} more: see {table}")
    text = "\n".join(fill(line, letters) for line in shown)
    line_height = 1.2 * size_pt / 72  # inches, as the figure's
    has_legend_below = is_narrow(settings) and bool(figure.legends)
    room = 0 if has_legend_below else ROOM_LINES
    figure.set_figheight(figure.get_figheight() + line_height * max(0, text.count("\n") + 1 - room))
    written = figure.supxlabel(text, fontsize=size_pt, color="0.25", x=0.01, ha="left")
    if has_legend_below:
        _stand_on(figure, written, line_height * (text.count("\n") + 2))


def _stand_on(figure: Figure, written: Text, high_inches: float) -> None:
    """Legends below the axes above the foot, too: the layout leaves room for the higher of them only."""
    share = high_inches / figure.get_figheight()
    written.set_in_layout(False)
    legends_share = sum(legend.get_window_extent().height for legend in figure.legends) / figure.bbox.height + 0.02
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, share, 1, 1 - share), transform=figure.transFigure)
    figure.set_layout_engine("constrained", rect=(0, share + legends_share, 1, 1 - share - legends_share))


def entitle(figure: Figure, text: str, settings: FigureConfig) -> None:
    """On as many lines as it takes."""
    size_pt = settings.font_size_pt + 2
    letters = int(0.97 * settings.width_mm / MM_PER_INCH * 72 / (0.62 * size_pt))
    lines = [fill(line, letters) for line in text.splitlines()]
    figure.suptitle("\n".join(lines), fontsize=size_pt, fontweight="bold")


def held(figure: Figure, wanted: int, row_inches: float, other_inches: float) -> int:
    """How many rows of what is wanted a figure has room for: one for print is no higher than a page."""
    page_rows = int((PAGE_MM / MM_PER_INCH - other_inches) / row_inches)
    return min(wanted, max(1, page_rows)) if in_print(figure) else wanted


def left_out(count: int, what: str, table: str) -> list[str]:
    """A note about what there is no room for."""
    return [f"{counted(count, f'more {what}')}: see {table}."] if count else []


def keep_to_page(figure: Figure) -> None:
    if in_print(figure):
        figure.set_figheight(min(figure.get_figheight(), PAGE_MM / MM_PER_INCH))


def caption_of(figure: Figure) -> str:
    """What stands at the foot of a figure, or would."""
    return str(figure.get_label())


def smaller(settings: FigureConfig, by_pt: float) -> float:
    """A size of text that is as much smaller than the others, as far as that can be read."""
    return max(min(settings.font_size_pt, LEAST_PT), settings.font_size_pt - by_pt)


def in_print(figure: Figure) -> bool:
    """Whether its title and foot stand in a caption beside it."""
    return not figure.get_suptitle()


def is_narrow(settings: FigureConfig) -> bool:
    return settings.width_mm < NARROW_MM


def label_x(axes: Axes, text: str, settings: FigureConfig) -> None:
    """On two lines, where a narrow figure has no room for one, and then as far left as names of rows go."""
    letters = int(settings.width_mm / MM_PER_INCH * 72 / (0.58 * settings.font_size_pt) * 0.7)  # of a figure's axes
    if is_narrow(settings):
        axes.set_xlabel(fill(text, letters), loc="right")
    else:
        axes.set_xlabel(text)


def height_mm(settings: FigureConfig) -> float:
    """Of a figure, before it grows for what it holds."""
    return (0.8 if is_narrow(settings) else 0.58) * settings.width_mm


def noise_floor(good: pd.DataFrame) -> Iterator[str]:
    """What the placebo says of all differences in a figure."""
    cells: list[Any] = list(good[is_placebo(good) & good.noise_floor_percent.notna()].itertuples())
    for cell in cells:
        twin = f"{cell.placebo_of}/{cell_name(cell).partition('/')[2]}"
        may_differ = f"{rounded(cell.noise_floor_percent)} %"
        yield f"Noise floor: {twin}, measured under two names, may differ by up to {may_differ} from itself."


def _without_numbers(warning: str) -> str:
    """What a warning of several cells has in common, so that it takes one line."""
    return re.sub(r" \(in \d+ of \d+ repeats\)", "", re.sub(r"\d[\d.]* %", "part", warning))


def cell_name(cell: object) -> str:
    return f"{cell.strategy}/{cell.launcher}/{cell.nodes}x{cell.devices_per_node}"  # type: ignore[attr-defined]


def wrapped(name: str, letters: int = NAME_LETTERS) -> str:
    """A long name on several lines, broken where it has a mark."""
    lines = [""]
    for piece in re.split(r"(?<=[/_, ])", name):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > letters:
            lines.append("")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def lines_of(names: Iterable[str]) -> int:
    """How many lines the longest of these has."""
    return max((name.count("\n") + 1 for name in names), default=1)


def legend(axes: Axes) -> None:
    """Right of the axes, or below them where there is no room."""
    handles, labels = axes.get_legend_handles_labels()
    figure = axes.get_figure(root=True)
    assert figure is not None
    if not labels:
        axes.text(0.5, 0.5, "n/a", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=20)
    elif _is_below(figure, labels):
        if (of_seaborn := axes.get_legend()) is not None:
            of_seaborn.remove()
        _legend_below(figure, handles, labels)
    else:
        legend = axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        line_pt = 1.5 * legend.prop.get_size_in_points()
        figure.set_figheight(max(figure.get_figheight(), (len(labels) + 8) * line_pt / 72))  # it, and the foot


def legend_of_panels(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """One for all panels, right of them or below."""
    if not labels:
        return
    if _is_below(figure, labels):
        _legend_below(figure, handles, labels)
    else:
        figure.legend(handles, labels, frameon=False, loc="outside right center")


def _is_below(figure: Figure, labels: Sequence[str]) -> bool:
    """Where it would take half of a narrow figure, or make one for print much higher."""
    return figure.get_figwidth() * MM_PER_INCH < NARROW_MM or (in_print(figure) and len(labels) > MOST_BESIDE)


def _legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """In as many columns as fit; the figure grows for it."""
    from matplotlib import rcParams

    size_pt = float(rcParams["legend.fontsize"])
    entry_pt = size_pt * (0.6 * max(map(len, labels)) + 4.5)  # with its line and the space beside it
    columns = min(len(labels), max(1, int(figure.get_figwidth() * 72 / entry_pt)))
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=columns)
    figure.set_figheight(figure.get_figheight() + (-(-len(labels) // columns) * 1.55 + 0.8) * size_pt / 72)


def worded(name: str) -> str:
    """A column or a key in words: `first step` of first_step_s."""
    return name.removesuffix("_s").replace("_", " ")


def seconds(value: Any) -> str:
    return f"{rounded(value)} s"


def rounded(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:#.3g}".rstrip(".") if value < 1000 else f"{value:.0f}"
