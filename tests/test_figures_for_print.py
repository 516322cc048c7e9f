"""Figures for print: a journal's widths, text that can be read and searched for, nothing on top of anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from factories import a_trial, an_unavailable_record, measured, rank_facts, repeats
from figured import EXPLAINED, ROWS, tables_of, words
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from dpscale.config import FigureConfig, load_config
from dpscale.figures import FIGURES, PRINTED, make_figure, render, render_for_print
from dpscale.figures.drawing import PAGE_MM, Tables, caption_of, style
from dpscale.planning.plan import plan_trials
from dpscale.reading import read_config
from dpscale.references import published, sets_of
from dpscale.tables import make_tables

ROOT = Path(__file__).parents[1]
MM_PER_PT = 25.4 / 72
LEAST_PT = 6.0
WIDTHS = list(FigureConfig().printed)


def preset_rows() -> Tables:
    """The matrix of imagenet_resnet50, as if one cell of it could not be measured."""
    config = load_config(read_config(ROOT / "workflow/experiments/imagenet_resnet50.yaml"))
    found = []
    for trial in plan_trials(config)["imagenet_resnet50"]:
        gpus = {"gpu_utilization_percent": 94.5, "peak_reserved_bytes": 36 * 2**30}
        ranks = [rank_facts(rank, **gpus) for rank in range(trial.world_size)]
        missing = trial.base == "data_parallel"
        found += [(trial, None, None) if missing else measured(trial, 1800 / trial.devices, ranks=ranks)]
    return tables_of(found)


def many_rows() -> Tables:
    names = ["ddp", "parameter_server", "ddp_powersgd", "allreduce", "local_sgd", "independent"]
    cells = [
        a_trial(strategy=name, base="ddp", launcher=launcher, devices_per_node=devices)
        for name in names
        for launcher in ("spawn", "torchrun")
        for devices in (1, 2, 4, 8)
    ]
    return tables_of([item for cell in cells for item in repeats(cell, [4 / cell.devices])])


def published_beside(rows: Tables, reference_set: str) -> Tables:
    """These tables with published numbers beside a cell that was measured, one that was not and one that can't be."""
    shared = {"model": "resnet50", "dataset": "imagenet", "batch_size_per_device": 400, "precision": "tf32"}
    single, ddp = a_trial(strategy="single", devices_per_node=1, **shared), a_trial(devices_per_node=8, **shared)
    lacking = a_trial(strategy="data_parallel", devices_per_node=8, **shared)
    cells = [*repeats(single, [900.0]), (ddp, None, None), (lacking, an_unavailable_record(lacking), None)]
    tables = make_tables(cells, published=sets_of([reference_set], published()))
    return rows | {"published": tables["published"]}


PRESET, MANY, OF_CAUSES = preset_rows(), many_rows(), tables_of(EXPLAINED)
PUBLISHED = published_beside(PRESET, "hfai_resnet50")


def rows_for(name: str) -> Tables:
    """A matrix of the field; of what that does not measure, one that does."""
    if name == "published":
        return PUBLISHED
    return OF_CAUSES if {"causes", "stragglers"} & set(FIGURES[name].tables) else PRESET


def drawn(name: str, tables: Tables, width: str) -> Figure:
    look = FigureConfig().printed[width]
    with rc_context(style(name, look)):
        figure = make_figure(name, tables, look, captioned=False)
        FigureCanvasAgg(figure).draw()
    return figure


def texts_of(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", FIGURES)
def test_text_is_large_enough_within_the_figure_and_on_no_other_label(name: str, width: str) -> None:
    figure = drawn(name, rows_for(name), width)
    assert figure.get_figwidth() * 25.4 == pytest.approx(FigureConfig().printed[width].width_mm)
    assert {text.get_text(): text.get_fontsize() for text in texts_of(figure) if text.get_fontsize() < LEAST_PT} == {}
    assert figure.get_figheight() * 25.4 <= PAGE_MM
    assert_labels_are_apart(figure)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    ("name", "note"),
    [("differences", "more pairs: see comparisons.csv"), ("startup", ""), ("utilization_per_device", "")],
)
def test_no_figure_for_print_is_higher_than_a_page(name: str, note: str, width: str) -> None:
    figure = drawn(name, MANY, width)
    assert figure.get_figheight() * 25.4 <= PAGE_MM + 0.01
    assert note in caption_of(figure)
    assert_labels_are_apart(figure)


@pytest.mark.parametrize("width", WIDTHS)
def test_published_numbers_that_a_page_has_no_room_for_are_counted_and_ours_stay(width: str) -> None:
    figure = drawn("published", published_beside(PRESET, "dlperf_bert"), width)
    assert figure.get_figheight() * 25.4 <= PAGE_MM
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert sum(name.endswith("here") for name in names) == 3
    assert re.search(r"\d+ more rows: see published.csv", caption_of(figure))
    assert_labels_are_apart(figure)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_panel_of_published_numbers_says_why_a_row_of_ours_has_none(width: str) -> None:
    for axes in drawn("published", PUBLISHED, width).axes:
        if axes.get_visible():
            found = {" ".join(text.get_text().split()) for text in axes.texts}
            assert {"missing", "unavailable"} <= found, axes.get_title()


@pytest.mark.parametrize("name", ["comparison", "speedup", "loss", "startup", "published"])
def test_a_screens_figure_in_one_column_has_its_title_and_legend_apart_from_all_else(name: str) -> None:
    look = FigureConfig(width_mm=89)
    with rc_context(style(name, look)):
        figure = make_figure(name, rows_for(name), look)
        FigureCanvasAgg(figure).draw()
    assert_labels_are_apart(figure)
    own = {text: text.get_window_extent() for text in texts_of(figure) if text.axes is None}
    title = next(box for text, box in own.items() if FIGURES[name].question == " ".join(text.get_text().split()))
    assert 0 <= title.x0 < title.x1 <= figure.bbox.x1
    foot = next(box for text, box in own.items() if "Unavailable" in text.get_text() or "Missing" in text.get_text())
    for legend in figure.legends:
        assert not legend.get_window_extent().overlaps(foot)
        assert all(
            not legend.get_window_extent().overlaps(axes.xaxis.label.get_window_extent()) for axes in figure.axes
        )


RAW = re.compile(r"_(s|percent|MiB|GiB|GB|MB)\b")


@pytest.mark.parametrize("name", FIGURES)
def test_no_label_is_the_name_of_a_column(name: str) -> None:
    figure = drawn(name, rows_for(name), "two_columns")
    assert [text.get_text() for text in texts_of(figure) if RAW.search(text.get_text())] == []
    assert not RAW.search(caption_of(figure))


def assert_labels_are_apart(figure: Figure) -> None:
    """Within the figure, and none on another."""
    labels = [label for axes in figure.axes if axes.get_visible() and axes.axison for label in labels_of(axes)]
    boxes = [(label.get_text(), label.get_window_extent()) for label in labels]
    for text, box in boxes:
        assert -1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1, f"{text!r} is cut"
    for (one, first), (other, second) in combinations(boxes, 2):
        assert not first.padded(-0.6).overlaps(second.padded(-0.6)), f"{one!r} lies on {other!r}"


LONG = "a_strategy_whose_name_says_all_of_its_options"
LONG_NAMES = tables_of(
    [
        item
        for index in range(6)
        for item in repeats(
            a_trial(strategy=f"{LONG}_{index}", base="ddp", launcher="torchrun"), [2.0 + index, 2.2 + index]
        )
    ]
)


@pytest.mark.parametrize(
    "name", ["comparison", "differences", "startup", "utilization_per_device", "utilization_over_time"]
)
def test_long_names_take_lines_instead_of_room_on_a_screen(name: str) -> None:
    with rc_context(style(name, FigureConfig())):
        figure = make_figure(name, LONG_NAMES, FigureConfig())
        FigureCanvasAgg(figure).draw()
    assert_labels_are_apart(figure)
    assert figure.axes[0].get_window_extent().width > 0.15 * figure.bbox.width
    for legend in [*figure.legends, *filter(None, (axes.get_legend() for axes in figure.axes))]:
        left = legend.get_window_extent().x0
        assert all(text.get_window_extent().x1 < left for axes in figure.axes for text in axes.texts)
        assert all(axes.get_window_extent().x1 < left for axes in figure.axes)


def labels_of(axes: Axes) -> Iterator[Text]:
    """Titles, names of axes, and numbers at ticks, as far as they are shown."""
    found = [axes.title, axes.xaxis.label, axes.yaxis.label]
    for axis, shown in ((axes.xaxis, "labelbottom"), (axes.yaxis, "labelleft")):
        if axis.get_tick_params().get(shown, True):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return (label for label in found if label.get_visible() and label.get_text().strip())


@pytest.mark.parametrize("tables", [PRESET, MANY], ids=["preset", "many"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_three_panels_stay_side_by_side_with_a_row_for_every_cell_on_one_page(tables: Tables, width: str) -> None:
    figure = drawn("comparison", tables, width)
    lefts = [axes.get_position().x0 for axes in figure.axes]
    assert len(lefts) == 3
    assert lefts == sorted(set(lefts))
    assert len({round(axes.get_position().y0, 3) for axes in figure.axes}) == 1
    assert len(figure.axes[0].get_yticklabels()) == len(tables["summary"])
    assert figure.get_figheight() * 25.4 <= PAGE_MM
    for axes in figure.axes:
        bars_end = max(artist.get_window_extent().x1 for artist in (*axes.patches, *axes.collections))
        assert bars_end < min(text.get_window_extent().x0 for text in axes.texts if text.get_ha() == "right")


def test_rows_of_the_three_panels_are_named_without_what_all_share() -> None:
    figure = drawn("comparison", PRESET, "one_column")
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names[:2] == ["single 1x1 tf32", "data_parallel 1x8 tf32"]


def test_title_and_foot_stand_in_the_caption_instead() -> None:
    files = render_for_print("comparison", tables_of(ROWS["unavailable and missing"]), FigureConfig())
    assert files.keys() == set(PRINTED)
    caption = files["txt"].decode()
    assert caption.startswith("What does each way to train cost?")
    assert "Bars: median of 3 launches; whiskers: range of 3." in caption
    assert "Missing: ddp/spawn/1x4 (not measured yet)" in caption
    assert "utilisation in %: CPU time of the ranks over what their threads could have used." in caption
    for width in WIDTHS:
        assert "What does each way" not in words(files[f"{width}.svg"].decode())
        assert "Bars: median" not in words(files[f"{width}.svg"].decode())


def test_text_stays_text_in_svg_and_pdf() -> None:
    files = render_for_print("speedup", tables_of(ROWS["normal"]), FigureConfig())
    svg, pdf = files["one_column.svg"].decode(), files["one_column.pdf"]
    assert "devices N" in words(svg)
    assert float(re.search(r'width="([\d.]+)pt"', svg)[1]) * MM_PER_PT == pytest.approx(89, abs=0.1)  # type: ignore[index]
    assert b"/Subtype /TrueType" in pdf or b"/CIDFontType2" in pdf  # Type 42, which journals take, and no Type 3
    assert b"/Type3" not in pdf


def test_the_same_tables_give_the_same_bytes() -> None:
    tables = tables_of(ROWS["normal"])
    assert render_for_print("speedup", tables, FigureConfig()) == render_for_print("speedup", tables, FigureConfig())


def test_settings_of_print_change_no_figure_of_the_screen() -> None:
    tables, settings = tables_of(ROWS["normal"]), FigureConfig.model_validate({"print": {"one_column_mm": 85}})
    assert render("speedup", tables, settings, ["svg"]) == render("speedup", tables, FigureConfig(), ["svg"])
    svg = render_for_print("speedup", tables, settings)["one_column.svg"].decode()
    assert float(re.search(r'width="([\d.]+)pt"', svg)[1]) * MM_PER_PT == pytest.approx(85, abs=0.1)  # type: ignore[index]
