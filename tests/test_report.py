"""The report, opened as a reader does: in a browser, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline import Checkout, whole_run

FIGURES = (
    "comparison",
    "differences",
    "efficiency",
    "epoch_time",
    "evaluation",
    "loss",
    "speedup",
    "startup",
    "utilization",
    "utilization_over_time",
    "utilization_per_device",
)
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    whole, _ = whole_run(tmp_path_factory.getbasetemp())
    return whole.copy(tmp_path_factory.mktemp("report") / "dpscale")


@pytest.fixture(scope="module")
def report(checkout: Checkout) -> Path:
    checkout.run("--report", "results/report.html")
    return checkout.results("report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("no chromium on the PATH (Debian: apt install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The opened report; whatever it asks of a network fails, and what it complains of is collected in `complaints`."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.complaints = []
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.on("console", lambda message: message.type == "error" and page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("requestfailed", lambda request: page.complaints.append(f"asked for {request.url}"))
    page.goto(report.as_uri())
    yield page
    page.close()


def test_a_report_is_one_file_with_every_figure(report: Path) -> None:
    text = report.read_text()
    for figure in FIGURES:
        assert f"{figure}.svg" in text
    assert report.stat().st_size < 20e6


def test_making_a_report_leaves_nothing_to_do(checkout: Checkout, report: Path) -> None:
    assert checkout.dry_run().jobs == {}


def test_the_report_opens_without_a_network_and_without_an_error(page: Any) -> None:
    page.get_by_text("Results", exact=True).first.wait_for()
    assert page.complaints == []


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_can_be_looked_at(page: Any, figure: str) -> None:
    page.get_by_text("Results", exact=True).first.click()
    page.locator("tr", has=page.get_by_text(figure, exact=True)).locator("a[iconname=eye]").click()
    image = page.locator(f"img[src*='filename={figure}.svg']")
    image.wait_for()
    size = image.evaluate("image => [image.naturalWidth, image.naturalHeight, image.clientWidth, image.clientHeight]")
    assert min(size) > 200, f"{figure} is shown {size}"
    assert page.complaints == []


def test_the_advice_can_be_read_in_it(page: Any) -> None:
    page.get_by_text("Results", exact=True).first.click()
    page.locator("tr", has=page.get_by_text("advice", exact=True)).locator("a[iconname=eye]").click()
    page.frame_locator("iframe").get_by_role("heading", name="What to do: small").wait_for()
    assert page.complaints == []
