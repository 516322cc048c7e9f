"""The presets of workflow/experiments: each plans everywhere, has a reduced form, and what runs on two cores is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import stand_in
import yaml
from pipeline import ROOT, Checkout, Done, small_config
from snakemake.utils import update_config

from dpscale.config import load_config
from dpscale.figures import FIGURES
from dpscale.launching.launches import missing_program
from dpscale.planning.plan import plan_trials
from dpscale.record import Record
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import Strategy
from dpscale.trial import Trial
from dpscale.workloads.arrays import write_prepared
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.datasets.settings import DatasetConfig

FOLDER = ROOT / "workflow/experiments"
PRESETS = {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}
TWO_NODES = {path.stem: path for path in sorted(FOLDER.glob("two_nodes/*.yaml"))}
REDUCED = {path.stem: path for path in sorted(FOLDER.glob("reduced/*.yaml"))}
HAVE_NONE = {  # they take minutes on two cores as they are
    "every_strategy",
    "every_collective",
    "emulated_compute_bound",
    "emulated_communication_bound",
}


def configuration(*files: Path) -> dict:
    """As Snakemake merges them over config.yaml."""
    whole: dict = {}
    for path in (ROOT / "config.yaml", *files):
        update_config(whole, yaml.safe_load(path.read_text()))
    return whole


def planned(name: str, *files: Path) -> list[Trial]:
    return plan_trials(load_config(configuration(*files)))[name]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_one_experiment_of_its_name_and_can_be_planned_on_any_machine(name: str) -> None:
    assert list(yaml.safe_load(PRESETS[name].read_text())["experiments"]) == [name]
    assert planned(name, PRESETS[name])


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_says_how_it_is_run(name: str) -> None:
    assert f" {name} --configfile {shown(PRESETS[name])}\n" in PRESETS[name].read_text()


def test_every_preset_has_a_reduced_form() -> None:
    assert REDUCED.keys() == PRESETS.keys() - HAVE_NONE


@pytest.mark.parametrize("name", REDUCED)
def test_a_reduced_form_compares_the_same_strategies_on_a_cpu_and_says_how_it_is_run(name: str) -> None:
    trials = planned(name, PRESETS[name], REDUCED[name])
    assert {trial.strategy for trial in trials} == {trial.strategy for trial in planned(name, PRESETS[name])}
    assert {trial.device for trial in trials} == {"cpu"}
    assert {trial.repeat for trial in trials} == {0}
    assert f" {name} --configfile {shown(PRESETS[name])} {shown(REDUCED[name])}\n" in PRESETS[name].read_text()


@pytest.mark.parametrize("name", REDUCED)
def test_a_reduced_form_overwrites_no_results_and_no_data_of_the_whole(name: str) -> None:
    whole, reduced = (load_config(configuration(*files)) for files in ([PRESETS[name]], [PRESETS[name], REDUCED[name]]))
    assert reduced.results_dir != whole.results_dir
    dataset = reduced.experiments[name].workload.dataset
    assert reduced.data_dir != whole.data_dir or reduced.datasets.get(dataset) == whole.datasets.get(dataset)


@pytest.mark.parametrize("name", TWO_NODES)
def test_a_form_of_two_nodes_is_the_preset_elsewhere_and_says_how_it_is_run(name: str) -> None:
    whole, trials = planned(name, PRESETS[name]), planned(name, PRESETS[name], TWO_NODES[name])
    assert {(trial.strategy, trial.devices) for trial in trials} == {(trial.strategy, trial.devices) for trial in whole}
    assert {trial.nodes for trial in trials} == {1, 2}
    assert (
        load_config(configuration(PRESETS[name], TWO_NODES[name])).results_dir
        != load_config(configuration()).results_dir
    )
    assert f" {name} --configfile {shown(PRESETS[name])} {shown(TWO_NODES[name])}\n" in PRESETS[name].read_text()


def run(copy: Checkout, presets: list[Path], *arguments: str) -> Done:
    """Presets' own experiments, beside those of the copy's config."""
    names = [path.stem for path in presets if path.parent == FOLDER]
    return copy.run(*names, *arguments, "--configfile", *map(shown, presets), timeout_s=900)


@pytest.mark.parametrize("more", [{}, REDUCED], ids=["whole", "reduced"])
def test_snakemake_plans_all_presets_at_once(more: dict[str, Path], tmp_path: Path) -> None:
    copy = Checkout.fresh(tmp_path / "copy", small_config())
    done = run(copy, [*PRESETS.values(), *more.values()], "-n")
    assert {f"plot_{figure}" for figure in FIGURES} <= done.jobs.keys()
    assert done.jobs["collect"] == len(PRESETS)


def test_the_matrix_of_imagenet_is_the_published_one() -> None:
    trials = planned("imagenet_resnet50", PRESETS["imagenet_resnet50"])
    cells = {(trial.base, trial.precision, str(trial.topology)) for trial in trials}
    assert cells == {
        ("single", "tf32", "1x1"),
        ("data_parallel", "tf32", "1x8"),
        ("ddp", "tf32", "1x8"),
        ("ddp", "fp16", "1x8"),
        ("ddp", "fp16", "4x8"),
        ("apex", "fp16", "1x8"),
        ("apex", "fp16", "4x8"),
    }
    assert {trial.batch_size_per_device for trial in trials} == {400}
    assert {trial.learning_rate for trial in trials} == {0.1 * images / 256 for images in (400, 3200, 12800)}


def test_the_processes_of_mnist_train_on_the_same_global_batches() -> None:
    trials = planned("mnist_convnet_cpu", PRESETS["mnist_convnet_cpu"])
    assert {trial.cell for trial in trials} == {
        "single/spawn/1x1",
        *(f"ddp/spawn/1x{processes}" for processes in (1, 2, 4, 8)),
    }
    assert len({trial.global_batch_size for trial in trials}) == 1


# From ImageNet's archives to accuracy


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The reduced preset's ddp, on archives as ILSVRC 2012 has them, of handwritten digits."""
    copy = Checkout.fresh(tmp_path_factory.mktemp("imagenet") / "copy", small_config())
    digits = tmp_path_factory.mktemp("prepared") / "digits"
    row = DATASETS["digits"]
    write_prepared(digits, "digits", row.samples(DatasetConfig()).classes, row.read(DatasetConfig()))
    stand_in.write(digits, copy.root / "data/reduced/ILSVRC2012", train_per_class=8, val_per_class=3)
    files = ["--configfile", shown(PRESETS["imagenet_resnet50"]), shown(REDUCED["imagenet_resnet50"])]
    results = "results/reduced/imagenet_resnet50"
    copy.run(f"{results}/trials/ddp/spawn/1x2/r0/record.json", *files)
    figures = [f"{results}/figures/{figure}.svg" for figure in ("loss", "epoch_time")]
    copy.run(*figures, *files, "--config", "partial=true")
    return copy


def test_imagenets_archives_are_packed_trained_on_by_two_ranks_and_evaluated(imagenet: Checkout):
    folder = imagenet.root / "results/reduced/imagenet_resnet50"
    record = Record.read(folder / "trials/ddp/spawn/1x2/r0/record.json")
    assert record.trial.model == "resnet18"
    assert [sum(segment.samples) for segment in record.segments] == [64, 64]  # of 80, in batches of 2 x 16
    last = record.segments[-1].evaluation
    assert last is not None
    assert last.samples == 30
    assert 0 <= last.correct <= last.correct_top5 <= 30
    assert record.trial.learning_rate == 0.1 * 32 / 256
    assert record.segments[-1].learning_rate == pytest.approx(
        record.trial.learning_rate * 4 / 10
    )  # of 5 epochs' warm-up


def test_figures_of_imagenet_say_what_its_matrix_lacks(imagenet: Checkout):
    for figure in ("loss", "epoch_time"):
        text = (imagenet.root / f"results/reduced/imagenet_resnet50/figures/{figure}.svg").read_text()
        assert "ddp" in text
        assert "Missing: single/spawn/1x1" in text


# All strategies


@pytest.fixture(scope="module")
def every_strategy(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    copy = Checkout.fresh(tmp_path_factory.mktemp("every") / "copy", small_config())
    run(copy, [PRESETS["every_strategy"]])
    return copy


def test_the_preset_of_every_strategy_names_every_strategy():
    preset = yaml.safe_load(PRESETS["every_strategy"].read_text())
    variants = preset["experiments"]["every_strategy"]["strategies"]
    assert {(options or {}).get("base", name) for name, options in variants.items()} == STRATEGIES.keys()


def test_every_strategy_is_measured_or_says_what_it_needs(every_strategy: Checkout):
    summary = every_strategy.table("summary", "every_strategy")
    assert set(summary.base) == STRATEGIES.keys()
    trials = {record["trial"]["strategy"]: Trial(**record["trial"]) for record in every_strategy.records()}
    for cell in summary.itertuples():
        row: Strategy = STRATEGIES[cell.base]
        need = missing_program(trials[cell.strategy]) or row.needs(trials[cell.strategy])
        if need is None:
            assert (cell.status, cell.strategy) == ("ok", cell.strategy), cell.reason
            assert cell.throughput_samples_per_s > 0
        else:
            assert (cell.status, cell.reason) == ("unavailable", need)


def test_what_was_unavailable_stands_in_every_figure_with_its_reason(every_strategy: Checkout):
    summary = every_strategy.table("summary", "every_strategy").query("status == 'unavailable'")
    assert len(summary)
    made = sorted(every_strategy.results("every_strategy/figures").glob("*.svg"))
    assert len(made) > 8
    for figure in (path.stem for path in made):
        text = every_strategy.results(f"every_strategy/figures/{figure}.svg").read_text()
        for strategy in summary.strategy:
            assert f"Unavailable: {strategy}/" in text, figure
