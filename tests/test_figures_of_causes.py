"""Where a step's time goes, as stacks of bars, and which ranks are late, as a map."""

from __future__ import annotations

import re

import numpy as np
import pytest
from figured import (
    EXPLAINED,
    NORMAL,
    svg_of,
    tables_of,
    words,
)
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from dpscale.config import FigureConfig
from dpscale.explaining import causes
from dpscale.figures import make_figure, render
from dpscale.figures.causes import PARTS
from dpscale.figures.drawing import caption_of
from dpscale.figures.parts import HATCHES, part_looks
from dpscale.figures.prediction import PARTS as PREDICTED


def test_the_parts_of_the_figures_are_those_of_the_tables():
    assert set(PARTS) == set(causes.PARTS)
    assert set(PARTS) <= set(HATCHES)


def test_a_part_of_a_step_looks_the_same_measured_and_predicted():
    figure = make_figure("causes", tables_of(EXPLAINED), FigureConfig())
    bars = {container.get_label(): container for axes in figure.axes for container in axes.containers}
    looks = part_looks(FigureConfig())
    assert set(PREDICTED) <= set(looks)
    for part, name in PARTS.items():
        if name in bars and part in PREDICTED:
            assert to_hex(bars[name][0].get_facecolor()) == to_hex(looks[part]["color"]), part
    for predicted, cause in (("exposed_communication_s", "transfer_s"), ("straggler_s", "waiting_s")):
        assert looks[predicted] == looks[cause]
    assert len({to_hex(looks[part]["color"]) for part in HATCHES}) == len(HATCHES)


def test_a_bar_is_as_high_as_its_step():
    tables = tables_of(EXPLAINED)
    (_, two, _), figure = (
        tables["causes"][tables["causes"].step_s.notna()].step_s,
        make_figure("causes", tables, FigureConfig()),
    )
    axes = figure.axes[0]
    tops = [patch.get_y() + patch.get_height() for patch in axes.patches]
    assert max(tops) == pytest.approx(1000 * two)


def test_cells_without_causes_are_named_with_the_reason():
    text = words(svg_of("causes", EXPLAINED))
    assert "Without causes: single/spawn/1x1 (it has no DDP" in text
    assert "Without causes: single/spawn/1x1, ddp/spawn/1x1, ddp/spawn/1x2 (explain is false)" in words(
        svg_of("causes", NORMAL)
    )


def test_causes_of_other_steps_than_the_trainings_are_warned_of():
    tables = tables_of(EXPLAINED)
    cells = tables["causes"]
    cells["beside_training_percent"] = 14.0
    two = (cells.nodes == 1) & (cells.devices == 2)
    cells.loc[two, ["beside_training_percent", "training_step_s"]] = 85.0, 0.0321
    text = words(render("causes", tables, FigureConfig(), ["svg"])["svg"].decode())
    (step_s,) = cells.step_s[two]
    assert (
        f"Warning: ddp/spawn/1x2: a step under controls took {1000 * step_s:.1f} ms and one of the training 32.1, so"
        in text
    )
    assert text.count("its causes are not the training's") == 1


def test_the_map_names_the_late_rank_and_its_node():
    text = words(svg_of("stragglers", EXPLAINED))
    assert "ddp/spawn/1x2: rank 1 on laptop is 20.0 ms late (20.0 to 20.0), the last of all in 6 of 6 rounds" in text
    assert "it costs the others 20.0 ms per step" in text
    assert {"node0", "node1"} <= set(text.split())


def mapped(low_s: float, high_s: float) -> Figure:
    """The map of ranks of which one is 20 ms late, with another interval."""
    tables = tables_of(EXPLAINED)
    ranks = tables["stragglers"]
    late = ranks.local_delay_s > 0
    for rows, interval in ((late, (low_s, high_s)), (~late, (-high_s, -low_s))):
        ranks.loc[rows, ["local_delay_s_low", "local_delay_s_high"]] = interval
    return make_figure("stragglers", tables, FigureConfig())


def coloured(figure: Figure) -> list[int]:
    """How many ranks of each map have a colour."""
    return [int(np.ma.count(image.get_array())) for axes in figure.axes for image in axes.images]


def test_ranks_that_are_late_beyond_noise_have_a_colour_and_a_scale_in_ms():
    figure = mapped(0.0195, 0.0208)
    assert coloured(figure) == [2, 4]
    assert "local delay in ms" in [axes.get_ylabel() for axes in figure.axes]
    assert "rank 1 on laptop is 20.0 ms late (19.5 to 20.8)" in caption_of(figure)
    assert "Hatched" not in caption_of(figure)


def test_a_rank_whose_interval_holds_0_is_hatched_and_not_called_late():
    figure = mapped(-0.0204, 0.0209)
    assert coloured(figure) == [0, 0]
    assert [len(axes.patches) for axes in figure.axes] == [2, 4]
    assert "local delay in ms" not in [axes.get_ylabel() for axes in figure.axes]
    text = caption_of(figure)
    assert "ddp/spawn/1x2: no rank is late beyond noise; the latest, rank 1 on laptop, by -20.4 to 20.9 ms" in text
    assert "ms late" not in text
    assert "Hatched: its interval holds 0" in text


def test_no_delay_is_minus_0():
    tables = tables_of(EXPLAINED)
    columns = [f"local_delay_s{end}" for end in ("", "_low", "_high")]
    tables["stragglers"][columns] = -0.00001, -0.00004, 0.00001
    text = words(render("stragglers", tables, FigureConfig(), ["svg"])["svg"].decode())
    assert not re.search(r"[-+]0\.0\b", text)
    assert "by 0.0 to 0.0 ms" in text
