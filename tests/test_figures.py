"""Figures are drawn of whatever tables there are, and say what was not measured and why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from factories import (
    a_trial,
    measured,
    repeats,
)
from figured import (
    DDP,
    EXPLAINED,
    NORMAL,
    OF_TRIALS,
    REASON,
    ROWS,
    SINGLE,
    caption,
    missing,
    on,
    svg_of,
    tables_of,
    unavailable,
    words,
)
from matplotlib.colors import to_hex

from dpscale.config import FigureConfig
from dpscale.figures import FIGURES, FORMATS, make_figure, render
from dpscale.tables import make_tables
from dpscale.tables.schema.cells import ESTIMATED
from dpscale.trial import PLACEBO

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_of_whatever_was_measured(name, rows):
    text = words(svg_of(name, ROWS[rows]))
    assert FIGURES[name].question in text
    assert "nan" not in text.lower().split()


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_where_a_column_is_empty(name):
    tables = tables_of(NORMAL)
    for column in [*ESTIMATED, "speedup", "scaling_efficiency"]:
        for part in (column, f"{column}_low", f"{column}_high"):
            tables["summary"][part] = np.nan
    assert FIGURES[name].question in words(render(name, tables, FigureConfig(), ["svg"])["svg"].decode())


@pytest.mark.parametrize("name", OF_TRIALS)
def test_what_was_not_measured_is_shown_with_its_reason(name):
    text = words(svg_of(name, ROWS["unavailable and missing"]))
    assert "Unavailable: data_parallel/spawn/1x2" in text
    assert REASON in text
    assert "Missing: ddp/spawn/1x4 (not measured yet)" in text


# what each figure draws is the first sentence of its foot

OVER_DEVICES = ["speedup", "efficiency", "epoch_time", "evaluation", "utilization"]
STACKS = (
    "Bars: parts, each the median over 6 rounds of blocks of steps. Diamonds: the whole step; whiskers: 95 % interval."
)
MAP = "Numbers and colours: local delay in ms, the median over 6 rounds of blocks of steps, by the rank's number on its node."
PARTS_OF_STARTUP = "Bars: parts one after another, of each the median over ranks and launches;"
FIRST_SENTENCES: dict[str, str] = {
    **dict.fromkeys(OVER_DEVICES, "Points: median of 3 launches; bars: range of 3."),
    "comparison": "Bars: median of 3 launches; whiskers: range of 3.",
    "differences": "Points: ratio of medians; bars: range of 3. Filled: a difference that is shown,",
    "published": "This experiment has no published numbers",
    "loss": "Curves: median of 3 launches; bands: their range.",
    "utilization_per_device": "Bars: median of 3 launches; whiskers: their range.",
    "utilization_over_time": "Lines: samples of one launch of each strategy, on most devices.",
    "startup": PARTS_OF_STARTUP,
    "causes": STACKS,
    "causes_by_rank": STACKS,
    "stragglers": MAP,
}
OF_ONE_LAUNCH: dict[str, str] = {
    **dict.fromkeys(OVER_DEVICES, "Points: 1 launch of each cell; no bars."),
    "comparison": "Bars: 1 launch of each cell; no whiskers.",
    "differences": "Points: ratio of medians; no bars. Filled:",
    "loss": "Curves: 1 launch of each cell; no bands.",
    "utilization_per_device": "Bars: 1 launch of each cell; no whiskers.",
}


@pytest.mark.parametrize("name", OF_TRIALS)
def test_the_foot_begins_with_what_the_figure_draws(name):
    explained = {"causes", "stragglers"} & set(FIGURES[name].tables)
    assert caption(name, EXPLAINED if explained else NORMAL).startswith(FIRST_SENTENCES[name])


@pytest.mark.parametrize("name", OF_ONE_LAUNCH)
def test_what_was_launched_once_has_no_bars(name):
    rows = [*repeats(SINGLE, [2.0]), *repeats(on(1), [2.0]), *repeats(DDP, [2.5])]
    assert caption(name, rows).startswith(OF_ONE_LAUNCH[name])


@pytest.mark.parametrize("name", OF_TRIALS)
def test_where_nothing_was_measured_no_sentence_says_what_is_drawn(name):
    first = caption(name, ROWS["nothing measured"]).partition(":")[0]
    assert first not in ("Points", "Bars", "Curves", "Lines", "Numbers", "Filled, measured here")


@pytest.mark.parametrize("name", OVER_DEVICES)
def test_the_number_of_repeats_and_what_bars_are_is_stated(name):
    text = words(svg_of(name, [*repeats(SINGLE, [2.0] * 7), *repeats(DDP, [2.0] * 8)]))
    assert "Points: median of 7-8 launches; bars: 95 % interval." in text


@pytest.mark.parametrize("name", OF_TRIALS)
def test_a_warning_of_a_cell_is_shown(name):
    text = words(svg_of(name, [*NORMAL, measured(on(4), oversubscribed=True)]))
    assert "Warning: oversubscribed" in text
    assert "ddp/spawn/1x4" in text.partition("Warning: ")[2]


@pytest.mark.parametrize("name", ["speedup", "efficiency"])
def test_the_base_is_named(name):
    assert "Base: single/spawn/1x1." in words(svg_of(name, NORMAL))
    assert "no base, so n/a" in words(svg_of(name, repeats(DDP, [2.0])))


def test_units_stand_at_the_axes_of_the_comparison():
    text = words(svg_of("comparison", NORMAL))
    assert all(unit in text for unit in ("time in s", "utilisation in %", "memory in MiB"))


def test_all_strategies_are_in_the_legend():
    text = words(svg_of("speedup", ROWS["twelve strategies"]))
    assert [name for name in (f"ddp_{i}" for i in range(12)) if name not in text] == []


def test_twelve_strategies_differ_by_colour_marker_or_line():
    axes = make_figure("efficiency", tables_of(ROWS["twelve strategies"]), FigureConfig()).axes[0]
    lines = [container.lines[0] for container in axes.containers]
    looks = [(to_hex(line.get_color()), line.get_marker(), line.get_linestyle()) for line in lines]
    assert len(looks) == len(set(looks)) == 14


def test_points_lie_at_the_values_of_the_table():
    tables = tables_of([*repeats(SINGLE, [2.0]), *repeats(DDP, [2.5])])
    axes = make_figure("speedup", tables, FigureConfig()).axes[0]
    heights = sorted(value for container in axes.containers for value in container.lines[0].get_ydata())
    assert heights == pytest.approx([1.0, 1.6])


def test_settings_change_the_figure():
    assert 'width="708' in svg_of("speedup", NORMAL, FigureConfig(width_mm=250.0))  # in points
    small, large = (
        max(
            float(size)
            for size in re.findall(r"([\d.]+)px", svg_of("speedup", NORMAL, FigureConfig(font_size_pt=points)))
        )
        for points in (9.0, 12.0)
    )
    assert large - small == 3.0


def test_a_reason_with_signs_that_matplotlib_reads_as_mathematics_is_shown_as_it_is():
    text = words(svg_of("speedup", [*NORMAL, *unavailable(reason="needs $HOME and $_PATH^ set")]))
    assert "needs $HOME and $_PATH^ set" in text


# the epoch time: where more devices bring nothing

FALLS_AND_RISES = [
    *repeats(SINGLE, [4.0]),
    *(
        item
        for devices, epoch_s in ((1, 4.2), (2, 2.0), (4, 3.0), (8, 3.5))
        for item in repeats(on(devices), [epoch_s])
    ),
]


def test_the_least_epoch_time_of_a_line_is_ringed():
    axes = make_figure("epoch_time", tables_of(FALLS_AND_RISES), FigureConfig()).axes[0]
    rings = [(line.get_xdata(), line.get_ydata()) for line in axes.lines if line.get_fillstyle() == "none"]
    ((x, y),) = rings
    assert float(np.squeeze(x)) == pytest.approx(2, rel=0.05)
    assert float(np.squeeze(y)) == 2.0
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4", "8"]


def test_the_rise_after_the_least_epoch_time_is_said():
    text = words(svg_of("epoch_time", FALLS_AND_RISES))
    assert "ddp: least on 2 devices, 2.00 s; more of them take longer: 3.00 s on 4, 3.50 s on 8." in text
    falls = words(svg_of("epoch_time", [*repeats(on(1), [4.0]), *repeats(on(2), [2.0])]))
    assert "ddp: least on 2 devices, 2.00 s, the most that were measured." in falls


def test_the_least_epoch_time_on_one_device_is_of_one_device_along_the_axis_of_other_figures():
    rows = [*repeats(on(1), [2.0]), *repeats(on(2), [3.0])]
    assert "ddp: least on 1 device, 2.00 s; more of them" in words(svg_of("epoch_time", rows))
    assert make_figure("epoch_time", tables_of(rows), FigureConfig()).axes[0].get_xlabel() == "devices N"


def test_parts_of_the_start_are_named_in_words():
    assert "first step" in words(svg_of("startup", NORMAL))


def test_a_strategy_on_one_device_is_compared_with_none_at_all():
    text = words(svg_of("epoch_time", FALLS_AND_RISES))
    assert "ddp on one device: 4.20 s, single 4.00 s; 0.95 times as fast (0.95 to 0.95)." in text
    assert "on one device" not in words(svg_of("epoch_time", [*repeats(on(1), [4.0]), *repeats(on(2), [2.0])]))


# the loss: thousands of steps of several cells


def curves(steps: int, launches: int = 1) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], str]:
    """Label -> (samples seen, loss) of each curve as it is drawn, and the text of the figure."""
    tables = tables_of([*repeats(SINGLE, [2.0] * launches), *repeats(on(1), [2.0] * launches)])
    step = np.arange(steps)
    noise = np.where(step % 2, 0.5, -0.5)  # from batch to batch
    rows = [
        {**cell, "repeat": repeat, "segment": 0, "step": number, "samples_seen": 32 * (number + 1), "loss": value}
        for cell in tables["losses"][["strategy", "launcher", "nodes", "devices_per_node"]]
        .drop_duplicates()
        .to_dict("records")
        for repeat in range(launches)
        for number, value in enumerate(2 - step / steps + noise)
    ]
    tables["losses"] = pd.DataFrame(rows)
    axes = make_figure("loss", tables, FigureConfig()).axes[0]
    lines = {str(line.get_label()): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines}
    drawn = {label: line for label, line in lines.items() if len(line[0])}
    return drawn, words(render("loss", tables, FigureConfig(), ["svg"])["svg"].decode())


def test_curves_of_one_strategy_are_told_apart_by_their_markers():
    rows = [item for devices in (1, 2, 4, 8) for item in repeats(on(devices), [2.0])]
    lines = make_figure("loss", tables_of(rows), FigureConfig()).axes[0].lines
    assert len({str(line.get_marker()) for line in lines if len(line.get_xdata())}) == 4


def test_a_curve_of_few_steps_is_drawn_step_by_step():
    drawn, text = curves(steps=40)
    assert [len(x) for x, _ in drawn.values()] == [40, 40]
    assert "successive steps" not in text


def test_points_of_a_long_curve_are_means_of_successive_steps_and_the_figure_says_so():
    drawn, text = curves(steps=3000, launches=2)
    assert len(drawn) == 2
    for samples_seen, losses in drawn.values():
        assert len(samples_seen) == 60
        assert samples_seen[0] == 32 * (1 + 50) / 2
        assert losses == pytest.approx(2 - samples_seen / 32 / 3000, abs=0.001)  # nothing is left of the noise
    assert "A point of a curve is the mean of up to 50 successive steps." in text


# the placebo and the differences

PLACEBO_ROWS = [*NORMAL, *repeats(replace(DDP, strategy=PLACEBO), [2.6, 2.4, 3.0])]


@pytest.mark.parametrize("name", [name for name, row in FIGURES.items() if "summary" in row.tables])
def test_every_figure_states_the_noise_floor_where_there_is_a_placebo(name):
    text = words(svg_of(name, PLACEBO_ROWS))
    assert "Noise floor: ddp/spawn/1x2, measured under two names, may differ by up to 25.0 % from itself." in text
    assert "Noise floor" not in words(svg_of(name, NORMAL))


def test_the_placebo_is_drawn_in_grey_and_takes_no_strategys_colour():
    before, after = (
        make_figure("speedup", tables_of(rows), FigureConfig()).axes[0].containers for rows in (NORMAL, PLACEBO_ROWS)
    )
    colours = [to_hex(container.lines[0].get_color()) for container in after]
    assert colours[:-1] == [to_hex(container.lines[0].get_color()) for container in before]
    assert colours[-1] == to_hex("0.45")
    assert after[-1].get_label() == "placebo: ddp again"


@pytest.mark.parametrize("name", ["comparison", "utilization_per_device"])
def test_bars_of_the_placebo_are_grey_and_no_others(name):
    before, after = (
        make_figure(name, tables_of(rows), FigureConfig()).axes[0].patches for rows in (NORMAL, PLACEBO_ROWS)
    )
    colours = [to_hex(bar.get_facecolor()) for bar in after]
    assert colours[: len(before)] == [to_hex(bar.get_facecolor()) for bar in before]
    assert set(colours[len(before) :]) == {to_hex("0.45")}
    assert to_hex("0.45") not in colours[: len(before)]


def test_the_noise_floor_is_a_band_around_no_difference():
    axes = make_figure("differences", tables_of(PLACEBO_ROWS), FigureConfig()).axes[0]
    (band,) = axes.patches
    left, right = band.get_x(), band.get_x() + band.get_width()
    assert (left, right) == pytest.approx((1 / 1.25, 1.25))


def test_differences_lie_at_the_ratios_of_the_table_with_their_verdicts():
    slow = a_trial(strategy="slow", base="ddp")
    tables = tables_of(
        [*repeats(DDP, [2.0 + i / 100 for i in range(6)]), *repeats(slow, [4.0 + i / 50 for i in range(6)])]
    )
    figure = make_figure("differences", tables, FigureConfig())
    (container,) = figure.axes[0].containers
    assert container.lines[0].get_xdata()[0] == pytest.approx(0.5)
    assert container.lines[0].get_markerfacecolor() == "0.1"  # filled: shown
    text = words(render("differences", tables, FigureConfig(), ["svg"])["svg"].decode())
    assert "slow / ddp, spawn 1x2" in text
    assert "slower" in text


def test_of_very_many_pairs_the_first_are_drawn_and_the_rest_is_counted():
    text = words(
        svg_of("differences", [item for i in range(11) for item in repeats(on(2, strategy=f"ddp_{i}"), [2.0])])
    )
    assert "15 more pairs: see comparisons.csv." in text  # 11 x 10 / 2 - 40


def test_outliers_are_counted_below_a_figure():
    text = words(svg_of("speedup", [*repeats(SINGLE, [2.0] * 5), *repeats(DDP, [2.0, 2.1, 2.0, 2.1, 9.0])]))
    assert "Points: median of 5 launches; bars: range of 5. Outliers, kept: 1." in text


def test_a_drift_is_said_once_with_its_numbers():
    drift = (
        "the machine drifted: from first to last launch epochs became 9.0 % longer (seasonal Kendall test, p = 0.001)"
    )
    tables = tables_of(NORMAL)
    tables["summary"]["warnings"] = drift
    text = words(render("speedup", tables, FigureConfig(), ["svg"])["svg"].decode())
    assert text.count("the machine drifted") == 1
    assert "9.0 % longer" in text


# plot.py


def plot(folder: Path, name: str, **environment: str) -> dict[str, bytes]:
    files = [folder / f"{name}.{kind}" for kind in FORMATS]
    subprocess.run(
        [sys.executable, SCRIPTS / "plot.py", name, f"--tables={folder}", "--out", *files],
        env={key: value for key, value in os.environ.items() if key != "DISPLAY"} | environment,
        check=True,
    )
    return {path.suffix: path.read_bytes() for path in files}


@pytest.fixture
def tables(tmp_path):
    for name, table in make_tables([*NORMAL, *unavailable(), *missing(on(4))]).items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("name", ["comparison", "loss"])
def test_the_same_tables_give_the_same_bytes_whatever_backend_the_user_has_set(tables, name):
    plain = plot(tables, name, PYTHONHASHSEED="1")
    assert plain.keys() == {".svg", ".png", ".pdf"}
    assert plot(tables, name, PYTHONHASHSEED="2", MPLBACKEND="TkAgg") == plain
