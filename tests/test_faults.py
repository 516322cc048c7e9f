"""docs/faults.md says what is true: every test that it names is there. And the faults that have no better place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SCRIPTS = ROOT / "scripts"
ROW = re.compile(r"^\| ([A-FS]\d+) \|.*\| (.*) \|$", re.MULTILINE)
PAGE = (ROOT / "docs" / "faults.md").read_text()
FAULTS = dict(ROW.findall(PAGE))


def test_no_fault_is_there_twice() -> None:
    assert len(FAULTS) == len(ROW.findall(PAGE)) > 40


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_has_tests_that_exist(fault: str) -> None:
    named = re.findall(r"`((?:slurm/)?test_\w+\.py)(?:::(\w+))?`", FAULTS[fault])
    assert named
    for file, name in named:
        text = (TESTS / file).read_text()
        assert f"def {name}(" in text if name else f"fault {fault}" in text, f"{file}::{name}"


def test_what_is_loaded_goes_to_the_cpu() -> None:
    calls = [
        (path, call)
        for path in SCRIPTS.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.load"
    ]
    assert calls
    for path, call in calls:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert given.get("map_location") == "'cpu'", path


def test_the_profile_waits_for_slow_file_systems_and_has_one_owner_of_retries() -> None:
    profile = yaml.safe_load((ROOT / "slurm" / "config.yaml").read_text())
    assert profile["latency-wait"] >= 60
    assert profile["slurm-no-requeue"] is True
    assert profile["retries"] > 0
    assert "slurm-array-jobs" not in profile
    assert not [
        path for path in (ROOT / "workflow").rglob("*.smk") if re.search(r"^\s+group:", path.read_text(), re.MULTILINE)
    ]
