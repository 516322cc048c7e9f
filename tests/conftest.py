"""What all tests share: with DPSCALE_FORBID_SKIPS=1 (CI) a skipped test fails, unless it needs a GPU; who runs beside whom."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("DPSCALE_FORBID_SKIPS") and not item.get_closest_marker("gpu"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For pytest-xdist's --dist=loadgroup: tests that share something costly stay in one process, others go where room is."""
    for item in items:
        scopes = {scope for scope, _ in shared_fixtures(item)}
        if "cluster" in {name for _, name in shared_fixtures(item)}:  # one SLURM on this machine, whatever asks for it
            item.add_marker(pytest.mark.xdist_group("slurm"))
        elif "module" in scopes:
            item.add_marker(pytest.mark.xdist_group(item.path.name))


def shared_fixtures(item: pytest.Item) -> list[tuple[str, str]]:
    """(scope, name) of every fixture that a test uses."""
    found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return [(definition.scope, name) for name, definitions in found.items() for definition in definitions]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small prepared dataset."""
    from launching import TEST_SAMPLES, TRAIN_SAMPLES

    from dpscale.config import DatasetConfig
    from dpscale.workloads.arrays import write_prepared
    from dpscale.workloads.datasets import DATASETS

    row = DATASETS["synthetic"]
    counts = DatasetConfig(train_samples=TRAIN_SAMPLES, test_samples=TEST_SAMPLES)
    folder = tmp_path_factory.mktemp("data") / "synthetic"
    write_prepared(folder, "synthetic", row.samples(counts).classes, row.read(counts))
    return folder
