"""What all tests share: with DPSCALE_FORBID_SKIPS=1 (CI) a skipped test fails, unless it needs a GPU."""

import os
from collections.abc import Generator

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
