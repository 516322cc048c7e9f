"""The report, opened as a reader does: in a browser, without a network."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import browsing, chromium, opened
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
    executable = chromium()
    if executable is None:
        pytest.skip("no chromium on the PATH (Debian: apt install chromium)")
    with browsing(executable) as started:
        yield started


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    """The opened report. Warnings are Snakemake's own: that it brings Tailwind as a script."""
    with opened(browser, report, complains=["error"], viewport={"width": 1400, "height": 900}) as page:
        yield page


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


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_result_leads_to_the_caption_that_says_how_to_read_it(
    browser: Any, report: Path, width: int, theme: str
) -> None:
    size = {"width": width, "height": 844}
    with opened(browser, report, complains=["error"], viewport=size, color_scheme=theme) as page:
        page.get_by_text("Results", exact=True).first.click()
        row = page.locator("tr", has=page.get_by_text("speedup", exact=True))
        row.locator("a[iconname=information-circle]").click()
        page.get_by_text("How much faster do N devices train than one?").wait_for()
        assert page.complaints == []


def test_the_explorer_works_within_the_report(page: Any) -> None:
    page.get_by_text("Results", exact=True).first.click()
    page.locator("tr", has=page.get_by_text("explore", exact=True)).locator("a[iconname=eye]").click()
    explorer = page.frame_locator("iframe")
    explorer.locator("html[data-ready]").wait_for(state="attached")
    explorer.get_by_role("checkbox", name="independent", exact=True).check()
    assert explorer.locator("#rows button").count() == 1
    assert explorer.locator("#elsewhere").is_visible()  # that links to records lead nowhere from here
    assert page.complaints == []


def test_a_trials_command_in_the_explorer_measures_that_trial_alone(browser: Any, checkout: Checkout) -> None:
    name = "ddp/torchrun/1x2"
    with opened(browser, checkout.results("small/explore.html"), f"#{name}") as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        command = page.get_by_label(f"Command that measures {name} r1 again").inner_text()
    _, *arguments = shlex.split(command)
    assert checkout.snakemake("-n", *arguments).measured == {f"{name}/r1"}
