"""What all tests share: with DPSCALE_FORBID_SKIPS=1 (CI) a skipped test fails, unless it needs a GPU; who runs beside whom; what
Hypothesis tries."""

import os
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

# The same examples each time, so that the same code ends the same way; `make fuzz` looks for others.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("others", deadline=None, print_blob=True)
settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and os.environ.get("DPSCALE_FORBID_SKIPS") and not item.get_closest_marker("gpu"):
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be skipped: {report.longrepr}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Who runs where under pytest-xdist. Its own groups by mark don't reach it under pytest 9.2, which hides node ids."""
    return Together(config, log)


class Together(LoadScopeScheduling):
    """Tests of a file that shares something costly stay in one process, all others go where there is room."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.startswith("tests/slurm/"):  # one SLURM on this machine
            return "tests/slurm"
        return file if shares_fixtures(self.config.rootpath / file) else nodeid


@cache
def shares_fixtures(file: Path) -> bool:
    return 'scope="module"' in file.read_text()


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless chromium."""
    from browsing import browsing, chromium

    executable = chromium()
    if executable is None:
        pytest.skip("no chromium on the PATH (Debian: apt install chromium)")
    with browsing(executable) as started:
        yield started
