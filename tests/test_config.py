"""A typing error in config.yaml costs one look: the message names the key's path, its value, and the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from factories import a_config, changed
from pydantic import BaseModel

from dpscale.config import RESERVED_NAMES, Config, load_config
from dpscale.errors import ConfigError
from dpscale.planning.plan import plan_trials

ROOT = Path(__file__).parents[1]
DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text())


def places(
    model: type[BaseModel] = Config, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], type[BaseModel]]]:
    """(path, model) of every level of the configuration; a mapping of names stands with one example name."""
    found = [(path, model)]
    examples = {"experiments": "quick", "strategies": "ddp", "datasets": "synthetic"}
    for name, field in model.model_fields.items():
        for inner in models_in(field.annotation):
            here = (*path, field.alias or name)
            found += places(inner, (*here, examples[name]) if name in examples else here)
    return found


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]


LEVELS = places()
KEYS = sorted({field.alias or name for _, model in LEVELS for name, field in model.model_fields.items()})


def errors_of(data: Any) -> str:
    """What is said of a configuration that must be refused."""
    with pytest.raises(ConfigError) as refused:
        plan_trials(load_config(data))
    return str(refused.value)


def refused(path: str, value: Any) -> str:
    return errors_of(changed(a_config(), path.split("."), value))


QUICK = "experiments.quick"


def test_the_default_config_is_planned():
    assert plan_trials(load_config(DEFAULT))["quickstart"]


def test_the_walk_finds_every_level():
    assert {model.__name__ for _, model in LEVELS} >= {"Config", "OptimizerConfig", "StrategyConfig", "DatasetConfig"}


@pytest.mark.parametrize("path", [path for path, _ in LEVELS], ids=".".join)
def test_an_unknown_key_is_refused_at_every_level(path):
    text = errors_of(changed(a_config(), (*path, "colour"), 1))
    assert text.startswith(f"config.yaml: {'.'.join(path) or 'top level'}: unknown key 'colour'")
    assert "valid: " in text


@pytest.mark.parametrize(
    ("path", "key"),
    [(path, field.alias or name) for path, model in LEVELS for name, field in model.model_fields.items()],
    ids=str,
)
def test_a_misspelt_key_is_answered_with_the_nearest_spelling(path, key):
    text = errors_of(changed(a_config(), (*path, key + "x"), 1))
    assert f"unknown key {key + 'x'!r}" in text
    assert f"did you mean {key!r}?" in text


@pytest.mark.parametrize(
    "path", [path for path, model in LEVELS if model.__name__ not in ("Config", "ExperimentConfig", "BatchConfig")]
)
def test_a_level_left_empty_means_its_defaults(path):
    assert plan_trials(load_config(changed(a_config(), path, None)))


@pytest.mark.parametrize("key", KEYS)
def test_no_key_is_one_letter_long_for_snakemake_takes_none_such_on_its_command_line(key):
    assert len(key) > 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{QUICK}.epochs", True),
        (f"{QUICK}.epochs", "3"),
        (f"{QUICK}.epochs", 3.0),
        (f"{QUICK}.repeats", None),
        (f"{QUICK}.seed", "zero"),
        (f"{QUICK}.evaluate", 1),
        (f"{QUICK}.evaluate", "yes"),
        (f"{QUICK}.timeout_s", True),
        (f"{QUICK}.timeout_s", "soon"),
        (f"{QUICK}.timeout_s", [600]),
        (f"{QUICK}.launchers", "spawn"),
        (f"{QUICK}.topologies", [1]),
        (f"{QUICK}.topologies", "1x1"),
        (f"{QUICK}.workload.optimizer.lr", "fast"),
        (f"{QUICK}.workload.dataset", 3),
        (f"{QUICK}.strategies.ddp.bucket_cap_MiB", "large"),
        (f"{QUICK}.strategies.ddp.static_graph", 1),
        (f"{QUICK}.strategies.ddp.precision", 16),
        (f"{QUICK}.workload.model_options.dropout", "no"),
        (f"{QUICK}.workload.model_options.dropout", None),
        ("results_dir", 5),
        ("partial", "yes"),
        ("figures.png_dpi", 200.5),
    ],
)
def test_a_wrong_type_is_refused_by_path_and_value(path, value):
    text = refused(path, value)
    assert path in text
    assert repr(value) in text or isinstance(value, list)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{QUICK}.epochs", 0),
        (f"{QUICK}.repeats", -1),
        (f"{QUICK}.repeats", 10**9),
        (f"{QUICK}.seed", -1),
        (f"{QUICK}.seed", 2**64),
        (f"{QUICK}.loader_workers", -1),
        (f"{QUICK}.threads_per_rank", 0),
        (f"{QUICK}.timeout_s", 0),
        (f"{QUICK}.timeout_s", 1e300),
        (f"{QUICK}.collective_timeout_s", float("inf")),
        (f"{QUICK}.timeout_s", float("nan")),
        (f"{QUICK}.timeout_s", "nan"),
        (f"{QUICK}.batch.per_device", 0),
        (f"{QUICK}.workload.optimizer.lr", 0),
        (f"{QUICK}.workload.optimizer.momentum", 1),
        (f"{QUICK}.workload.optimizer.weight_decay", -0.1),
        (f"{QUICK}.workload.train_samples", 0),
        (f"{QUICK}.strategies.ddp.bucket_cap_MiB", 0),
        ("figures.width_mm", 10),
        ("figures.font_size_pt", 40),
        ("results_dir", ""),
    ],
)
def test_a_value_out_of_range_is_refused_by_path_value_and_range(path, value):
    text = refused(path, value)
    assert f"config.yaml: {path} = " in text
    assert "should " in text


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "0.001", ".001"])
def test_a_number_that_yaml_reads_as_text_is_the_number_that_it_is(text):
    config = load_config(changed(a_config(), f"{QUICK}.workload.optimizer.lr".split("."), text))
    assert config.experiments["quick"].workload.optimizer.lr == 0.001


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"epochs": 3, "steps": 30}, "give exactly one of epochs and steps"),
        ({"epochs": None}, "give exactly one of epochs and steps"),
        ({"warmup_steps": 2}, "use warmup_epochs beside epochs"),
        ({"epochs": None, "steps": 30, "warmup_epochs": 1}, "use warmup_steps beside steps"),
        ({"batch": {"per_device": 8, "global": 16}}, "give exactly one of per_device (weak scaling) and global"),
        ({"batch": {}}, "give exactly one of per_device (weak scaling) and global"),
        ({"batch": {"global_": 16}}, "did you mean 'global'?"),
        ({"launchers": ["spawn", "spawn"]}, "spawn listed more than once; keep one"),
        ({"topologies": ["1x1", "1x1"]}, "1x1 listed more than once; keep one"),
        ({"strategies": {"ddp": {"topologies": ["1x1", "1x1"]}}}, "1x1 listed more than once; keep one"),
        ({"strategies": {"ddp": {"launchers": ["spawn", "spawn"]}}}, "spawn listed more than once; keep one"),
        ({"strategies": {}}, "at least 1 item"),
        ({"launchers": []}, "at least 1 item"),
        ({"topologies": []}, "at least 1 item"),
        ({"strategies": {"ddp": {"launchers": []}}}, "at least 1 item"),
        ({"device": "gpu"}, "valid: cpu, cuda"),
        ({"device": "cudo"}, "did you mean 'cuda'?"),
        ({"precision": "fp8"}, "valid: fp32, tf32, bf16, fp16"),
        ({"workload": {"optimizer": {"name": "adams"}}}, "did you mean 'adam'?"),
    ],
)
def test_keys_that_exclude_each_other_are_refused_with_the_remedy(changes, remedy):
    text = errors_of(a_config(**changes))
    assert text.startswith("config.yaml: experiments.quick")
    assert remedy in text


@pytest.mark.parametrize("path", ["experiments", f"{QUICK}.batch", f"{QUICK}.strategies", f"{QUICK}.topologies"])
def test_a_missing_key_is_asked_for_by_its_path(path):
    data = a_config()
    *way, last = path.split(".")
    place = data
    for key in way:
        place = place[key]
    del place[last]
    assert errors_of(data) == f"config.yaml: {path}: this key is required"


@pytest.mark.parametrize("name", ["Quick", "two words", "a/b", "a-b", "1st", "é_e", "q", "..", "a\n", ""])
def test_a_name_is_of_characters_that_paths_and_wildcards_take(name):
    experiment = a_config()["experiments"]["quick"]
    assert "names are two or more of a-z" in errors_of({"experiments": {name: experiment}})
    assert "names are two or more of a-z" in errors_of(a_config(strategies={name: {"base": "ddp"}}))


def test_another_text_than_a_name_is_not_called_one():
    assert "names are" not in refused("cluster.gres", "two words")


def test_no_experiment_bears_the_name_of_a_rule():
    """Snakemake would not start: an experiment is a rule of its own."""
    sources = [ROOT / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk")]
    rules = {name for path in sources for name in re.findall(r"^(?:rule|checkpoint) (\w+):", path.read_text(), re.M)}
    assert {"trial", "collect", "tables"} <= rules <= RESERVED_NAMES


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "plot_speedup"])
def test_the_name_of_a_rule_is_refused_for_an_experiment(name):
    text = errors_of({"experiments": {name: a_config()["experiments"]["quick"]}})
    assert f"{name}: the name of a target of the Snakefile; choose another" in text


@pytest.mark.parametrize("folder", ["res{ults}", "{experiment}", "two\nlines", "a\tb"])
def test_a_folder_is_of_characters_that_snakemake_leaves_alone(folder):
    assert f"results_dir = {folder!r}" in refused("results_dir", folder)
    assert f"data_dir = {folder!r}" in refused("data_dir", folder)


@pytest.mark.parametrize(
    "folder", ["results", "/scratch/me/run-2/v1.0_x+y", "../elsewhere", "my results", "Ergebnisse/größe"]
)
def test_ordinary_folders_are_taken(folder):
    assert load_config({**a_config(), "results_dir": folder}).results_dir == folder


def test_every_problem_is_named_at_once_one_a_line():
    lines = errors_of(a_config(device="gpu", repeats=0, seed=-1)).splitlines()
    assert [re.match(r"config.yaml: (\S+)", line)[1] for line in lines] == [
        "experiments.quick.device",
        "experiments.quick.repeats",
        "experiments.quick.seed",
    ]


@pytest.mark.parametrize("path", [path for path, _ in LEVELS if path], ids=".".join)
@pytest.mark.parametrize("value", [["a", "list"], "text", 3, True])
def test_what_is_no_mapping_is_refused_by_path_where_keys_are_expected(path, value):
    text = errors_of(changed(a_config(), path, value))
    assert ".".join(path) in text
    assert "keys with values are expected" in text
    assert "Config" not in text  # a class of ours says nothing to a user


def test_names_that_are_given_as_a_list_come_back_as_keys():
    text = refused("experiments.quick.strategies", ["single", "ddp"])
    assert (
        "strategies: keys with values are expected here; with defaults alone: strategies: {single: null, ddp: null}"
        in text
    )


def test_a_text_in_the_place_of_a_list_comes_back_as_one():
    assert "launchers = 'spawn': a list is expected here; write [spawn]" in refused(
        "experiments.quick.launchers", "spawn"
    )


@pytest.mark.parametrize("data", [None, {}, [], "text", 3, {1: 2}, {None: None}])
def test_a_file_that_holds_something_else_is_refused(data):
    assert errors_of(data).startswith("config.yaml: ")


@pytest.mark.parametrize("key", [1, 1.5, True, None, (1, 2)], ids=repr)
@pytest.mark.parametrize(
    "path",
    [(), ("experiments",), *[("experiments", "quick", *rest) for rest in [(), ("strategies",), ("strategies", "ddp")]]],
    ids=".".join,
)
def test_a_key_that_is_no_text_is_refused_by_its_path(path, key):
    text = errors_of(changed(a_config(strategies={"ddp": {"static_graph": False}}), (*path, key), {}))
    assert text.startswith("config.yaml: " + (".".join(path) or "top level"))
    assert str(key) in text


@pytest.mark.parametrize("place", ["datasets", "experiments"])
def test_a_key_that_would_break_its_line_is_escaped(place):
    with pytest.raises(ConfigError) as refused:
        plan_trials(load_config(changed(a_config(), [place, "a\rb\u2028c"], {"x": 1})))
    lines = str(refused.value).splitlines()
    assert lines
    assert all(line.startswith(f"config.yaml: {place}.a\\rb\\u2028c") for line in lines)


@pytest.mark.parametrize(
    "path", [f"{QUICK}.workload.model", f"{QUICK}.strategies.ddp.base", "results_dir", "cluster.prelude"]
)
def test_half_of_a_character_is_refused_by_its_path(path):
    assert f"config.yaml: {path}: holds half of a character" in refused(path, "a\ud800")


def test_a_number_of_thousands_of_digits_is_refused_by_its_path():
    """Python itself would not write it into the message."""
    assert f"config.yaml: {QUICK}.epochs = a number of thousands of digits" in refused(f"{QUICK}.epochs", 16**5000)


def test_a_choice_between_integers_refuses_one_beyond_64_bits_with_a_remedy():
    said = refused(f"{QUICK}.strategies.deepspeed", {"stage": 2**63})
    assert (
        f"{QUICK}.strategies.deepspeed.stage = {2**63}: far larger than any value valid here; write a smaller" in said
    )
