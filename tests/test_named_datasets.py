"""Several datasets of one kind in a configuration, each under a name of the user's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import images
import pytest
from factories import a_config
from pipeline import Checkout, small_config, small_experiment

from dpscale.config import load_config
from dpscale.errors import ConfigError
from dpscale.planning.plan import plan_trials

FLOWERS = {"base": "image_folder", "source": "/flowers", "crop": 32}
RESNET = {"model": "resnet18", "dataset": "flowers"}


def refusal(datasets: dict[str, Any], **workload: Any) -> str:
    """The one line with which the plan refuses it."""
    with pytest.raises(ConfigError) as refused:
        plan_trials(load_config({**a_config(workload=workload), "datasets": datasets}))
    (line,) = str(refused.value).splitlines()
    return line.removeprefix("config.yaml: ")


def test_a_name_of_ones_own_is_planned_as_the_row_behind_it():
    trials = plan_trials(load_config({**a_config(workload=RESNET), "datasets": {"flowers": FLOWERS}}))["quick"]
    assert {trial.dataset for trial in trials} == {"flowers"}
    said = refusal({"flowers": FLOWERS}, **(RESNET | {"model": "convnet"}))
    assert "images of (3, 32, 32), but model 'convnet' takes images of (1, 28, 28)" in said


def test_its_number_of_samples_is_that_of_its_settings():
    of_noise = {"noise": {"base": "synthetic", "train_samples": 100}}
    said = refusal(of_noise, dataset="noise", train_samples=1000)
    assert "train_samples = 1000: noise has 100" in said


@pytest.mark.parametrize(
    ("datasets", "said"),
    [
        ({"flowers": FLOWERS | {"base": "image_foldr"}}, "base = 'image_foldr': unknown dataset; did you mean 'image_folder'?"),
        ({"flowers": {"source": "/flowers"}}, "datasets.flowers: unknown dataset; valid: digits, "),
        ({"digits": {"base": "synthetic"}}, "datasets.digits.base = 'synthetic': digits is a dataset itself; remove base"),
        ({"my flowers": FLOWERS}, "datasets.my flowers: names are two or more of a-z, 0-9 and _"),
        ({"downloads": FLOWERS}, "datasets.downloads: names are two or more of a-z, 0-9 and _, "),
        ({"two": {"base": "mnist"}}, "datasets.two.base = 'mnist': there is one mnist only; use its own name, or one of image"),
        ({"two": {"base": "digits"}}, "datasets.two.base = 'digits': there is one digits only"),
        ({"flowers": FLOWERS | {"context": 8}}, "datasets.flowers.context = 8: flowers takes source, classes, crop, "),
    ],
)  # fmt: skip
def test_what_can_not_be_is_refused(datasets, said):
    assert said in refusal(datasets)


def test_a_name_of_ones_own_needs_its_base_and_is_suggested_by_its_spelling():
    assert "a name of your own needs base: and one of these" in refusal({"flowers": {"source": "/flowers"}})
    assert "unknown dataset 'flower'; did you mean 'flowers'?" in refusal({"flowers": FLOWERS}, dataset="flower")


def test_its_source_is_asked_for_by_its_own_name():
    said = refusal({"flowers": {"base": "image_folder"}}, **RESNET)
    assert "say where its files lie, in datasets.flowers.source" in said


def test_each_is_prepared_for_itself_from_folder_and_archive_and_what_is_wrong_is_said_by_its_name(tmp_path: Path):
    tree = images.tree(tmp_path / "tree")
    archive = shutil.make_archive(str(tmp_path / "it's flowers"), "zip", tree)
    experiments = {
        name: small_experiment(workload={"model": "resnet18", "dataset": name}, batch={"per_device": 2})
        for name in ("flowers", "small_flowers")
    }
    datasets = {
        "flowers": {**FLOWERS, "source": str(tree)},
        "small_flowers": {**FLOWERS, "source": archive, "short_side": 16},
    }
    checkout = Checkout.fresh(
        tmp_path / "dpscale", {**small_config(), "experiments": experiments, "datasets": datasets}
    )
    assert checkout.run("prepare").jobs == {"prepare_dataset": 2, "prepare": 1}
    made = {name: json.loads((checkout.root / "data" / name / "manifest.json").read_text()) for name in datasets}
    assert {name: manifest["packing"]["short_side"] for name, manifest in made.items()} == {
        "flowers": None,
        "small_flowers": 16,
    }
    assert checkout.dry_run("prepare").jobs == {}

    datasets["small_flowers"]["source"] = str(tmp_path)
    checkout.configure(checkout.config | {"datasets": datasets})
    done = checkout.snakemake("--cores", "2", "prepare")
    assert done.returncode != 0
    assert f"datasets.small_flowers.source = '{tmp_path}': needs train/<class>/" in done.output
