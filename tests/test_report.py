"""The report, opened as a reader does: in a browser, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline import ROOT, Checkout, whole_run

from dpscale import figures as drawn
from dpscale.tables.schema import TABLES

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


def look_at(page: Any, category: str) -> None:
    """Choose one of the report's categories."""
    page.get_by_text(category, exact=True).first.click()


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_can_be_looked_at(page: Any, figure: str) -> None:
    look_at(page, "small")
    page.locator("tr", has=page.get_by_text(figure, exact=True)).locator("a[iconname=eye]").click()
    image = page.locator(f"img[src*='filename={figure}.svg']")
    image.wait_for()
    size = image.evaluate("image => [image.naturalWidth, image.naturalHeight, image.clientWidth, image.clientHeight]")
    assert min(size) > 200, f"{figure} is shown {size}"
    assert page.complaints == []


def test_every_table_that_is_not_of_single_steps_or_samples_is_there_with_its_caption(page: Any) -> None:
    look_at(page, "small tables")
    page.get_by_text("summary", exact=True).wait_for()
    rows = page.locator("tbody tr")
    names = {rows.nth(place).locator("td").first.inner_text().strip() for place in range(rows.count())}
    assert names == set(TABLES) - {"losses", "timeline"}
    page.locator("tr", has=page.get_by_text("records", exact=True)).locator("a[iconname='information-circle']").click()
    page.get_by_text("A row per planned launch: the file that all other numbers come from").wait_for()
    assert page.complaints == []


def test_the_methods_can_be_read(page: Any) -> None:
    look_at(page, "small methods")
    page.locator("tr", has=page.get_by_text("methods", exact=True)).locator("a[iconname=eye]").click()
    methods = page.frame_locator("iframe")
    methods.get_by_role("heading", name="Methods of small").wait_for()
    assert "data_parallel/spawn/1x2" in methods.locator("body").inner_text()
    assert page.complaints == []


# --- captions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", drawn.FIGURES)
def test_a_figures_caption_says_how_to_read_it_and_where_what_is_missing_stands(figure: str) -> None:
    text = (ROOT / f"workflow/report/{figure}.rst").read_text()
    assert len(text.split()) > 30
    assert "What was not measured is named with its reason at the figure's foot" in text
    assert "methods page of {{ snakemake.wildcards.experiment }}" in text


@pytest.mark.parametrize("table", sorted(TABLES.keys() - {"losses", "timeline"}))
def test_a_tables_caption_says_what_a_row_is_and_what_is_missing(table: str) -> None:
    text = (ROOT / f"workflow/report/tables/{table}.rst").read_text()
    assert text.startswith("A row per ")
    assert "methods page" in text
