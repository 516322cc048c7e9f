"""Published numbers: all of them, each with its source, in our quantities, beside ours and never mixed with them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest
import yaml
from factories import a_config, a_single_trial, measured, repeats
from pipeline import ROOT

from dpscale.config import FigureConfig, load_config
from dpscale.errors import ConfigError
from dpscale.figures import FIGURES, make_figure, render
from dpscale.figures.references import LABELS, SPEEDUP
from dpscale.planning.plan import plan_trials
from dpscale.references import FOLDER, PRECISIONS, QUANTITIES, REFERENCES, Published, published, sets_of
from dpscale.strategies import STRATEGIES
from dpscale.tables import make_tables
from dpscale.tables.schema.trials import SUMMARY

ROWS = published()
FIGURE = "HFAiLab/pytorch_distributed@b090fbd:result.png"
ARTICLE = "High-Flyer AI: article on the same test (text)"
CELLS = {  # of the table below, in the order of the columns
    "single": ("single", 1),
    "nn.DataParallel": ("nn.DataParallel", 8),
    "DDP": ("DDP (torch.nn.parallel, mp.spawn)", 8),
    "apex": ("apex.amp + apex DDP", 8),
    "apex on 4 nodes": ("apex.amp + apex DDP, 4 nodes", 32),
}
# source, quantity -> the numbers of these cells, as they were published
HIGH_FLYER = {
    (FIGURE, "epoch_with_evaluation_s"): [1786.8, 984.6, 239.4, 231.0, 54.5],
    (FIGURE, "utilization_percent"): [99.5, 59.8, 99.5, 88.8, 79.2],
    (FIGURE, "mean_memory_GB"): [39.92, 39.92, 39.92, 24.48, 24.48],
    (ARTICLE, "epoch_with_evaluation_s"): [1786, 984, 239, 230, 52],
    (ARTICLE, "utilization_percent"): [None, 36.5, 95.8, None, None],
    (ARTICLE, "mean_memory_percent"): [None, None, None, 60, None],
}

SINGLE = a_single_trial(model="resnet50", dataset="imagenet", precision="tf32", batch_size_per_device=400)
DDP = replace(SINGLE, strategy="ddp", base="ddp", devices_per_node=8, world_size=8)
AMP = replace(DDP, strategy="ddp_amp", precision="fp16")


def unmeasured(*trials):
    return [(trial, None, None) for trial in trials]


def tables_of(rows, *sets: str) -> dict[str, pd.DataFrame]:
    return make_tables(rows, published=sets_of(sets or ["hfai_resnet50"], ROWS))


def theirs(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.whose == "published"]


def ours(table: pd.DataFrame) -> pd.DataFrame:
    return table[table.whose == "ours"]


# The files


def test_every_published_number_is_read_as_it_stands_in_its_file():
    lines = [line for path in FOLDER.glob("*.csv") for line in csv.DictReader(path.open())]
    assert Counter((line["source"], line["metric"], float(line["value"])) for line in lines) == Counter(
        (row.source, row.metric, row.value) for row in ROWS
    )
    assert all(row.source and row.unit for row in ROWS)


def test_every_number_belongs_to_exactly_one_set():
    of_sets = Counter(row for name in REFERENCES for row in sets_of([name], ROWS)[name])
    assert of_sets == Counter(ROWS)


def test_every_metric_and_precision_is_known_and_every_name_leads_to_a_row_of_ours():
    assert {row.metric for row in ROWS} == QUANTITIES.keys()
    assert {row.precision for row in ROWS} == PRECISIONS.keys()
    assert {row.base for row in ROWS} - {None} <= STRATEGIES.keys()


def test_quantities_that_we_measure_are_columns_of_ours_or_made_of_one():
    made = {"mean_memory_GB", "peak_reserved_GiB"}
    assert {quantity.name for quantity in QUANTITIES.values() if quantity.measured} <= SUMMARY.keys() | made
    assert {quantity.name for quantity in QUANTITIES.values()} | {SPEEDUP} == LABELS.keys()


@pytest.mark.parametrize("name", REFERENCES)
def test_the_reference_of_a_set_is_one_of_its_cells(name):
    known = REFERENCES[name]
    assert known.reference is None or any(known.is_reference(row) for row in sets_of([name], ROWS)[name])


# Their numbers


@pytest.mark.parametrize(("source", "quantity"), HIGH_FLYER)
def test_the_table_has_the_numbers_of_high_flyer_twice_each_with_its_source(source, quantity):
    table = theirs(tables_of(unmeasured(SINGLE))["published"])
    found = table[(table.source == source) & (table.quantity == quantity)].set_index(["strategy", "devices"]).value
    expected = {CELLS[cell]: value for cell, value in zip(CELLS, HIGH_FLYER[source, quantity], strict=True)}
    assert found.round(2 if "memory" in quantity else 1).to_dict() == {
        cell: value for cell, value in expected.items() if value is not None
    }


@pytest.mark.parametrize(("source", "times"), [(FIGURE, 1786.7849 / 54.5026), (ARTICLE, 1786 / 52)])
def test_the_speedup_over_their_reference_is_their_30_times_and_says_what_differs(source, times):
    table = theirs(tables_of(unmeasured(SINGLE))["published"])
    (row,) = table[(table.source == source) & (table.devices == 32) & table[SPEEDUP].notna()].itertuples()
    assert row.speedup_vs_reference == pytest.approx(times)
    assert 30 <= row.speedup_vs_reference < 35
    assert row.reference_cell == "single, fp32/tf32 default, 1x1"
    assert "precision: AMP-fp16, there fp32/tf32 default" in row.differs_in
    assert "devices: 32, there 1" in row.differs_in


def test_a_speedup_of_step_times_counts_the_samples_of_all_devices():
    """PyTorch's benchmark: 0.097 s alone, 0.104 s on 16 GPUs of 32 images each."""
    table = theirs(tables_of(unmeasured(SINGLE), "pytorch_ddp_resnet50")["published"])
    row = table[(table.strategy == "DDP") & (table.devices == 16)].iloc[0]
    assert row.speedup_vs_reference == pytest.approx(16 * 0.097 / 0.104)


# Ours beside them


def test_an_epoch_of_ours_is_compared_with_evaluation_as_theirs_holds_it():
    rows = [*repeats(SINGLE, [900.0] * 3), *unmeasured(DDP)]  # and 1 s of evaluation
    table = tables_of(rows)["published"]
    mine = ours(table)[lambda rows: rows.quantity == "epoch_with_evaluation_s"].set_index("strategy")
    assert mine.loc["single"].value == 901.0
    pair = theirs(table)[lambda rows: (rows.strategy == "single") & (rows.quantity == "epoch_with_evaluation_s")]
    assert pair.measured_over_published.tolist() == pytest.approx([901 / 1786.7849, 901 / 1786])
    assert set(pair.measured_cell) == {"single/spawn/1x1"}
    assert set(pair.measured_differs_in) == {""}


def test_what_ours_differs_in_is_said():
    small = replace(SINGLE, model="resnet18", batch_size_per_device=16)
    table = theirs(tables_of([measured(small)])["published"])
    (text,) = set(table.measured_differs_in.dropna()) - {""}
    assert text == "model: resnet18, there resnet50, batch_size_per_device: 16, there 400"


def test_ours_stands_right_behind_the_cell_that_it_is_of():
    table = tables_of([*repeats(SINGLE, [900.0]), *repeats(DDP, [120.0])])["published"]
    places = list(dict.fromkeys(zip(table.whose, table.strategy, strict=True)))
    assert places.index(("ours", "single")) == places.index(("published", "single")) + 1
    assert places.index(("ours", "ddp")) == places.index(("published", CELLS["DDP"][0])) + 1


def test_another_precision_or_number_of_devices_is_not_the_same_cell():
    two = replace(DDP, devices_per_node=2, world_size=2)
    table = theirs(tables_of([*repeats(AMP, [100.0]), *repeats(two, [500.0])])["published"])
    assert table.measured_cell.isna().all()


def test_our_speedup_is_over_ours_that_is_the_reference_and_says_what_differs():
    table = tables_of([*repeats(SINGLE, [899.0] * 2), *repeats(AMP, [29.0] * 2)])["published"]
    row = ours(table)[lambda rows: (rows.strategy == "ddp_amp") & rows[SPEEDUP].notna()].iloc[0]
    assert row.speedup_vs_reference == pytest.approx(900 / 30)
    assert row.reference_cell == "single/spawn/1x1"
    assert (
        row.differs_in
        == "strategy: ddp_amp, there single, precision: fp16, there tf32, devices: 8, there 1, global_batch_size: 3200, there 400"
    )


def test_what_was_not_measured_here_stands_beside_them_with_its_reason():
    mine = ours(tables_of(unmeasured(SINGLE, DDP))["published"])
    assert set(mine.strategy) == {"single", "ddp"}
    assert set(mine.reason) == {"not measured yet"}
    assert mine.value.isna().all()


def test_utilisation_of_a_cpu_is_not_that_of_a_gpu():
    table = tables_of(repeats(SINGLE, [900.0] * 3))["published"]
    busy = table[table.quantity == "utilization_percent"]
    (row,) = ours(busy).itertuples()
    assert (pd.isna(row.value), row.reason) == (True, "of a CPU: another quantity")
    assert theirs(busy).measured_over_published.isna().all()


def test_an_experiment_without_references_has_none():
    assert make_tables(unmeasured(SINGLE))["published"].empty


# The figure


def drawn(figure) -> dict[str, list[tuple[str, float]]]:
    """Title of a panel -> (label of the row, value) of each of its points."""
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    return {
        axes.get_title(): [
            (labels[int(point.lines[0].get_ydata()[0])], float(point.lines[0].get_xdata()[0]))
            for point in axes.containers
        ]
        for axes in figure.axes
    }


@pytest.mark.parametrize("name", REFERENCES)
def test_the_figure_holds_every_number_of_a_set_each_in_a_row_with_its_source(name):
    tables = tables_of(unmeasured(SINGLE), name)
    figure = make_figure("published", tables, FigureConfig())
    points = drawn(figure)
    foot = squeezed(figure.get_supxlabel())
    numbers: dict[str, str] = {}
    for row in sets_of([name], ROWS)[name]:
        origin = f"{row.source} ({row.system}, {row.gpu})"
        before, found, _ = foot.partition(squeezed(f"] {origin}"))
        assert found, f"{origin} is not named below the figure"
        number = before.rpartition("[")[2]
        numbers[origin] = number
    expected = Counter(
        (LABELS[row.quantity.name], label_of(row, numbers), row.value) for row in sets_of([name], ROWS)[name]
    )
    found = Counter(
        (title, label, value)
        for title, of_panel in points.items()
        if title != LABELS[SPEEDUP]
        for label, value in of_panel
    )
    assert found == expected


def test_numbers_stand_at_their_points_in_the_digits_that_were_published():
    svg = render("published", tables_of(unmeasured(SINGLE)), FigureConfig(), ["svg"])["svg"].decode()
    shown = re.findall(r">([\d.]+)</text>", svg)
    assert {"1786.8", "984.58", "239.4", "230.98", "54.503", "39.92", "24.48"} <= set(shown)
    assert {"1786", "984", "239", "230", "52", "36.5", "95.8", "60"} <= set(shown)


def squeezed(text: str) -> str:
    """Lines are broken behind hyphens, too."""
    return "".join(text.split())


def label_of(row: Published, numbers: dict[str, str]) -> str:
    where = numbers[f"{row.source} ({row.system}, {row.gpu})"]
    return f"{row.strategy}\n{row.precision}, {row.nodes}x{row.gpus // row.nodes} [{where}]"


def test_the_figure_says_that_they_are_of_somebody_elses_machine():
    tables = tables_of([*repeats(SINGLE, [900.0] * 3), *unmeasured(DDP)])
    figure = make_figure("published", tables, FigureConfig())
    foot = squeezed(figure.get_supxlabel())
    assert squeezed("Hollow: published, of somebody else's machine") in foot
    assert squeezed("single/spawn/1x1: 0.504 times the epoch time (training and evaluation) of [1]") in foot
    faces = {point.lines[0].get_markerfacecolor() for point in figure.axes[0].containers}
    assert len(faces) == 2
    assert "white" in faces


def test_rows_of_ours_under_several_launchers_name_theirs():
    by_torchrun = replace(DDP, launcher="torchrun")
    figure = make_figure(
        "published", tables_of([*repeats(DDP, [100.0] * 3), *repeats(by_torchrun, [90.0] * 3)]), FigureConfig()
    )
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    mine = {label for label in labels if label.endswith("here")}
    assert mine == {"ddp\ntf32, 1x8, spawn, here", "ddp\ntf32, 1x8, torchrun, here"}


def test_numbers_of_ours_have_three_digits_and_stand_behind_their_bars():
    figure = make_figure("published", tables_of(repeats(SINGLE, [900.123, 1000.456, 1100.789])), FigureConfig())
    (text,) = [text for text in figure.axes[0].texts if text.get_text() == "1001"]  # and 1 s of evaluation
    assert text.xy[0] == pytest.approx(1101.789)


def test_the_figure_of_an_experiment_without_references_says_so():
    svg = render("published", make_tables(unmeasured(SINGLE)), FigureConfig(), ["svg"])["svg"].decode()
    assert "has no published numbers" in " ".join(svg.split())


# The configuration


def test_an_unknown_set_is_refused_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"references: unknown set of published numbers 'hfai_resnet'; did you mean 'hfai_resnet50'"
    ):
        plan_trials(load_config(a_config(references=["hfai_resnet"])))


def test_only_experiments_with_references_are_to_have_the_figure():
    with_them, without = (
        load_config(a_config(references=names)).experiments["quick"] for names in (["hfai_resnet50"], [])
    )
    assert FIGURES["published"].is_for(with_them)
    assert not FIGURES["published"].is_for(without)


def test_the_matrix_of_imagenet_names_its_published_numbers():
    preset = yaml.safe_load((ROOT / "workflow/experiments/imagenet_resnet50.yaml").read_text())
    assert preset["experiments"]["imagenet_resnet50"]["references"] == ["hfai_resnet50"]
