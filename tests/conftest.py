"""What all tests share: with DPSCALE_FORBID_SKIPS=1 (CI) a skipped test fails, unless it needs a GPU."""

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
