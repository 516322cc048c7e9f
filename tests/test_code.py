"""A digest of the code that a trial runs: it changes with what the code does, and with nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dpscale import code
from dpscale.code import digest, digest_of, prepare_code, row_module, source_files, trial_code
from dpscale.launching.launchers import LAUNCHERS
from dpscale.strategies import STRATEGIES
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.models import MODELS

SCRIPTS = code.SCRIPTS
TABLES = {"dpscale.strategies": STRATEGIES, "dpscale.workloads.models": MODELS, "dpscale.workloads.datasets": DATASETS}
SOURCE = '''"""A module."""
import os

LIMIT = 3


def double(x):
    return 2 * x


class Thing:
    size = 1
'''


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A copy of scripts/ to edit; digests are computed of it, and nothing of other tests is remembered."""
    scripts = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "SCRIPTS", scripts)
    forget()
    yield scripts
    forget()


def forget():
    for function in vars(code).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new, 1))
    forget()


def digest_of_text(tmp_path, monkeypatch, text: str) -> str:
    monkeypatch.setattr(code, "SCRIPTS", tmp_path)
    (tmp_path / "module.py").write_text(text)
    forget()
    return digest([tmp_path / "module.py"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 3  # why"),
        ("import os\n", "# what for\nimport os\n\n\n"),
        ("LIMIT = 3", "LIMIT  =  (3)"),
        ('"""A module."""', '"""Another text."""'),
        ('"""A module."""\n', ""),
        ("    return 2 * x", '    """Twice x."""\n    return 2 * x'),
        ("    size = 1", '    """A thing."""\n\n    size = 1'),
    ],
)
def test_comments_docstrings_and_layout_change_no_digest(tmp_path, monkeypatch, old, new):
    before = digest_of_text(tmp_path, monkeypatch, SOURCE)
    assert digest_of_text(tmp_path, monkeypatch, SOURCE.replace(old, new)) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("LIMIT = 3", "LIMIT = 4"), ("2 * x", "x * 2"), ("size = 1", 'size = "1"'), ("import os", "import sys")],
)
def test_code_changes_the_digest(tmp_path, monkeypatch, old, new):
    before = digest_of_text(tmp_path, monkeypatch, SOURCE)
    assert digest_of_text(tmp_path, monkeypatch, SOURCE.replace(old, new)) != before


def test_a_function_of_a_docstring_alone_can_be_digested(tmp_path, monkeypatch):
    assert digest_of_text(tmp_path, monkeypatch, 'def nothing():\n    """Nothing."""\n')


def all_digests() -> dict[tuple[str, ...], str]:
    return {
        (strategy, model, launcher): trial_code(strategy, model, launcher)
        for strategy in STRATEGIES
        for model in MODELS
        for launcher in LAUNCHERS
    }


def test_a_digest_says_nothing_of_where_the_checkout_lies(checkout):
    here = all_digests()
    code.SCRIPTS = SCRIPTS
    forget()
    assert all_digests() == here


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategys_module_changes_the_digest_of_its_own_trials(checkout, strategy):
    before = all_digests()
    module = row_module("dpscale.strategies", strategy)
    edited(
        checkout / Path(*module.split(".")).with_suffix(".py"), " = Strategy(\n", " = Strategy(\n    requires='more',\n"
    )
    changed = {key[0] for key, value in all_digests().items() if value != before[key]}
    ring_and_server = {"ring", "parameter_server"}  # in one module
    groups = {
        "ddp": {"ddp", "independent", "local_sgd", "zero", "emulated_ddp"},
        **dict.fromkeys(ring_and_server, ring_and_server),
    }
    assert changed == groups.get(strategy, {strategy})


def test_a_new_row_of_a_table_changes_no_other_trials_digest(checkout):
    before = all_digests()
    table = checkout / "dpscale/strategies/__init__.py"
    (checkout / "dpscale/strategies/new.py").write_text(
        "from dpscale.strategies.base import Strategy\nROW = Strategy(summary='new')\n"
    )
    edited(table, "    data_parallel,\n", "    data_parallel,\n    new,\n")
    edited(table, '    "ddp": ddp.ROW,\n', '    "ddp": ddp.ROW,\n    "new": new.ROW,\n')
    assert all_digests() == before
    assert trial_code("new", "convnet", "spawn") not in before.values()


@pytest.mark.parametrize(
    "path", ["launch.py", "train.py", "dpscale/measure.py", "dpscale/training.py", "dpscale/workloads/loading.py"]
)
def test_an_edit_of_what_every_trial_runs_changes_every_digest(checkout, path):
    before = all_digests()
    edited(checkout / path, "\nimport ", "\nEXTRA = 1\nimport ")
    assert not set(all_digests().values()) & set(before.values())


def test_an_edit_of_a_launcher_changes_its_own_trials(checkout):
    before = all_digests()
    edited(checkout / "torchrun.py", "\nimport ", "\nEXTRA = 1\nimport ")
    assert {key[2] for key, value in all_digests().items() if value != before[key]} == {"torchrun"}


@pytest.mark.parametrize(
    "path",
    [
        "collect.py",
        "plot.py",
        "dpscale/figures/loss.py",
        "dpscale/tables/trials.py",
        "dpscale/metrics.py",
        "dpscale/planning/plan.py",
    ],
)
def test_an_edit_of_what_comes_after_changes_no_trial(checkout, path):
    before = all_digests()
    edited(checkout / path, "\nfrom ", "\nEXTRA = 1\nfrom ")
    assert all_digests() == before


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_datasets_digest_holds_its_own_module(checkout, dataset):
    before = {name: prepare_code(name) for name in DATASETS}
    module = row_module("dpscale.workloads.datasets", dataset)
    edited(checkout / Path(*module.split(".")).with_suffix(".py"), "\nfrom ", "\nEXTRA = 1\nfrom ")
    changed = {name for name in DATASETS if prepare_code(name) != before[name]}

    def is_made_with_it(name: str) -> bool:
        own = row_module("dpscale.workloads.datasets", name)
        source = SCRIPTS.joinpath(*own.split(".")).with_suffix(".py").read_text()
        return own == module or f"from {module} import" in source

    assert changed == {name for name in DATASETS if is_made_with_it(name)}


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, rows in TABLES.items() for name in rows])
def test_every_row_of_every_table_has_its_module(table, name):
    module = row_module(table, name)
    assert module.startswith(f"{table}.")
    assert SCRIPTS.joinpath(*module.split(".")).with_suffix(".py").is_file()


@pytest.mark.parametrize("table", TABLES)
def test_a_row_that_there_is_not_is_named(table):
    with pytest.raises(LookupError, match=r"no row 'nothing' written as 'nothing': module\.ROW"):
        row_module(table, "nothing")


def test_a_row_that_is_made_in_the_table_itself_is_refused(checkout):
    edited(checkout / "dpscale/strategies/__init__.py", '"ddp": ddp.ROW', '"ddp": Strategy(summary="here")')
    with pytest.raises(LookupError, match="no row 'ddp'"):
        row_module("dpscale.strategies", "ddp")


def test_an_import_for_the_type_checker_alone_is_not_followed():
    assert not {"record.py", "metrics.py"} & {path.name for path in source_files(SCRIPTS / "prepare.py")}


def test_a_digest_is_of_two_different_files_even_if_they_say_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(code, "SCRIPTS", tmp_path)
    (tmp_path / "a.py").write_text("X = 1\n")
    (tmp_path / "b.py").write_text("X = 1\n")
    assert digest_of(("a.py",)) != digest_of(("b.py",))
