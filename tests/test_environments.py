"""The environments agree: what is pinned directly, the locks, and what conda installs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ENVS = Path(__file__).parents[1] / "envs"


def normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, str]:
    """package -> version, of a requirements file."""
    found = re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ENVS / name).read_text(), re.M)
    assert found, name
    return {normal(package): version for package, version in found}


def conda_pins() -> dict[str, str]:
    dependencies = yaml.safe_load((ENVS / "dpscale.yaml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    return {normal(package): version for package, version in (line.split("==") for line in pip)}


def test_conda_installs_exactly_the_direct_pins():
    assert conda_pins() == pins("requirements.in")


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-deepspeed"])
def test_every_direct_pin_is_in_the_lock_with_its_version(name):
    direct, lock = pins(f"{name}.in"), pins(f"{name}.txt")
    assert {package: lock.get(package) for package in direct} == direct


@pytest.mark.parametrize("name", ["requirements-dev.txt", "requirements-deepspeed.txt"])
def test_what_is_installed_beside_what_runs_changes_no_version_of_it(name):
    run, beside = pins("requirements.txt"), pins(name)
    both = run.keys() & beside.keys()
    assert "numpy" in both
    assert {package: beside[package] for package in both} == {package: run[package] for package in both}


def test_horovods_own_needs_change_nothing_of_what_is_locked():
    needed, lock = pins("requirements-horovod.txt"), pins("requirements-dev.txt")
    both = needed.keys() & lock.keys()
    assert {package: needed[package] for package in both} == {package: lock[package] for package in both}


def test_the_dev_lock_alone_makes_a_whole_environment():
    assert pins("requirements.txt").keys() <= pins("requirements-dev.txt").keys()


@pytest.mark.parametrize("name", sorted(path.name for path in ENVS.glob("requirements*")))
def test_every_line_is_a_pin(name):
    lines = [line.split(" #")[0].split(" ;")[0].strip() for line in (ENVS / name).read_text().splitlines()]
    loose = [
        line for line in lines if line and not line.startswith(("#", "-r ")) and not re.fullmatch(r"\S+==\S+", line)
    ]
    assert loose == []


@pytest.mark.parametrize("package", ["apex", "horovod", "nvidia-apex"])
def test_apex_of_the_package_index_is_a_web_toolkit_and_not_nvidias(package):
    assert package not in pins("requirements-dev.txt") | pins("requirements.txt")
