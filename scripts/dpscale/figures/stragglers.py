"""Which rank comes late: a map of nodes and ranks, coloured only where a delay is more than noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpscale.config import FigureConfig
from dpscale.figures.causes import MS, nothing, rounds_of
from dpscale.figures.drawing import GREY, Tables, cell_name, foot, held, is_narrow, left_out, smaller, wrapped

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

CELL = ["strategy", "launcher", "nodes", "devices_per_node"]
SIDE_BY_SIDE = 8  # ranks on a node, above which a map has the whole width, and numbers stand upright
NUMBERED, NARROW_NUMBERED = 32, 4  # ranks on a node, above which there is no room for their numbers
COLOURS = ("#fdc57f", "white", "#c8c4e0")  # early, as the others, late: light enough for black numbers, also in grey


def stragglers(figure: Figure, tables: Tables, settings: FigureConfig) -> None:
    """A map for each cell of more than one rank: a row for each node, a column for each of its ranks."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    ranks = tables["stragglers"]
    ranks = ranks.assign(beyond_noise=(ranks.local_delay_s_low > 0) | (ranks.local_delay_s_high < 0))
    cells = [cell for _, cell in ranks.groupby(CELL, sort=False)]
    if not cells:
        nothing(figure.subplots())
        foot(figure, tables["summary"], settings, notes=["No explained cell has more than one rank."])
        return
    beside = 1 if is_narrow(settings) or ranks.local_rank.max() >= SIDE_BY_SIDE else min(2, len(cells))
    node_inches = 0.25 if ranks.local_rank.max() < SIDE_BY_SIDE else 0.45
    more = len(cells)
    highest = max(cell.node_name.nunique() for cell in cells)
    rows = held(figure, -(-len(cells) // beside), 0.9 + node_inches * highest, other_inches=1.3)
    cells = cells[: rows * beside]
    more -= len(cells)
    nodes = sum(cell.node_name.nunique() for cell in cells)
    figure.set_figheight(max(figure.get_figheight(), 1.3 + 0.9 * rows + node_inches * nodes))
    all_axes = figure.subplots(rows, beside, squeeze=False).flatten()
    palette = LinearSegmentedColormap.from_list("early to late", COLOURS)
    worst = MS * ranks.local_delay_s[ranks.beyond_noise].abs().max()
    norm = Normalize(-worst, worst) if worst == worst else Normalize(-1, 1)  # NaN: there is none, and no colour
    for axes, cell in zip(all_axes, cells, strict=False):
        _map(axes, cell, palette, norm, settings)
    for axes in all_axes[len(cells) :]:
        axes.set_visible(False)
    for axes in all_axes[::beside]:
        axes.set_ylabel("node")
    if ranks.beyond_noise.any():
        figure.colorbar(ScalarMappable(norm, palette), ax=list(all_axes), label="local delay in ms", aspect=30)
    notes = [*left_out(more, "cell", "stragglers.csv"), *map(_latest, cells)]
    foot(figure, tables["summary"], settings, _drawn(ranks), notes)


def _map(axes: Axes, cell: pd.DataFrame, palette: Any, norm: Normalize, settings: FigureConfig) -> None:
    import numpy as np
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

    table = MS * _grid(cell, "local_delay_s")
    beyond = _grid(cell, "beyond_noise").to_numpy(float) == 1
    axes.imshow(np.ma.masked_where(~beyond, table.to_numpy(float)), cmap=palette, norm=norm, aspect="auto")
    for (row, column), delay_ms in np.ndenumerate(table.to_numpy(float)):
        if not np.isfinite(delay_ms):  # a node with fewer ranks
            continue
        if not beyond[row, column]:
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor="white", edgecolor="0.88", hatch="//", linewidth=0))
        if len(table.columns) <= (NARROW_NUMBERED if is_narrow(settings) else NUMBERED):
            axes.text(
                column,
                row,
                _signed(delay_ms),
                ha="center",
                va="center",
                fontsize=smaller(settings, 1),
                color="black" if beyond[row, column] else GREY,
                rotation=90 if len(table.columns) > SIDE_BY_SIDE else 0,
            )
    if len(table.columns) <= SIDE_BY_SIDE:
        axes.xaxis.set_major_locator(FixedLocator(range(len(table.columns))))
        axes.xaxis.set_major_formatter(FixedFormatter([str(rank) for rank in table.columns]))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_yticks(range(len(table.index)), list(table.index))
    axes.set_title(wrapped(cell_name(next(cell.itertuples()))), fontsize=settings.font_size_pt)
    axes.set_xlabel("rank on its node")
    axes.grid(visible=False)


def _grid(cell: pd.DataFrame, column: str) -> pd.DataFrame:
    """Nodes x ranks on each."""
    return cell.pivot_table(index="node_name", columns="local_rank", values=column, sort=False)


def _signed(delay_ms: float) -> str:
    text = f"{delay_ms:+z.1f}"
    return "0.0" if text == "+0.0" else text


def _drawn(ranks: pd.DataFrame) -> str:
    medians = (
        f"Numbers and colours: local delay in ms, the median over {rounds_of(ranks)}, by the rank's number on its node."
    )
    hatched = " Hatched: its interval holds 0, so it may be noise." if not ranks.beyond_noise.all() else ""
    return medians + hatched


def _latest(cell: pd.DataFrame) -> str:
    """Which rank is late beyond noise, or that none is."""
    late = cell[cell.local_delay_s_low > 0]
    latest = (cell if late.empty else late).nlargest(1, "local_delay_s").iloc[0]
    delay, low, high, cost = (
        f"{MS * latest[name]:z.1f}"
        for name in ("local_delay_s", "local_delay_s_low", "local_delay_s_high", "step_cost_s")
    )
    who, name = f"rank {latest['rank']} on {latest['node_name']}", cell_name(next(cell.itertuples()))
    last = f"the last of all in {latest['rounds_last']} of {latest['rounds']} rounds"
    if late.empty:
        return f"{name}: no rank is late beyond noise; the latest, {who}, by {low} to {high} ms, {last}."
    return f"{name}: {who} is {delay} ms late ({low} to {high}), {last}; it costs the others {cost} ms per step."
