"""The presets of workflow/experiments: each plans everywhere, and what runs on two cores is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pipeline import ROOT, Checkout, Done, small_config

from dpscale.figures import FIGURES
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import Strategy
from dpscale.trial import Trial
from launch import missing_program

PRESETS = sorted((ROOT / "workflow/experiments").glob("*.yaml"))


def run(copy: Checkout, preset: Path, *arguments: str) -> Done:
    """A preset's own experiments, beside those of the copy's config."""
    names = yaml.safe_load(preset.read_text())["experiments"]
    return copy.run(*names, *arguments, "--configfile", str(preset.relative_to(ROOT)), timeout_s=900)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda path: path.stem)
def test_a_preset_can_be_planned_on_any_machine(preset: Path, tmp_path: Path) -> None:
    copy = Checkout.fresh(tmp_path / "copy", small_config())
    assert run(copy, preset, "-n").measured


@pytest.fixture(scope="module")
def every_strategy(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    copy = Checkout.fresh(tmp_path_factory.mktemp("every") / "copy", small_config())
    run(copy, ROOT / "workflow/experiments/every_strategy.yaml")
    return copy


def test_the_preset_of_every_strategy_names_every_strategy():
    preset = yaml.safe_load((ROOT / "workflow/experiments/every_strategy.yaml").read_text())
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
    for figure in FIGURES:
        text = every_strategy.results(f"every_strategy/figures/{figure}.svg").read_text()
        for strategy in summary.strategy:
            assert f"Unavailable: {strategy}/" in text, figure
