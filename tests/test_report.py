"""The report, opened as a reader does: in a browser, without a network."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import opened, serious_violations
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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    whole, _ = whole_run(tmp_path_factory.getbasetemp())
    return whole.copy(tmp_path_factory.mktemp("report") / "dpscale")


@pytest.fixture(scope="module")
def report(checkout: Checkout) -> Path:
    """As `make run` makes it."""
    checkout.run("--report", "results/report.html")
    page = checkout.results("report.html")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "label_report.py"), str(page)], check=True)
    return page


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


@pytest.mark.parametrize("width", [1280, 390])
def test_it_can_be_heard(browser: Any, report: Path, width: int) -> None:
    """By axe-core's rules, before and after the first clicks; Snakemake leaves its pictures without names."""
    with opened(browser, report, complains=["error"], viewport={"width": width, "height": 844}) as page:
        page.get_by_text("small", exact=True).first.wait_for()
        assert serious_violations(page) == []
        look_at(page, "small")
        page.get_by_role("link", name="Show speedup", exact=True).click()
        page.get_by_role("img", name="speedup", exact=True).wait_for()
        assert serious_violations(page) == []


def shown_in_view(shown: Any) -> dict[str, float]:
    """Where it lies on the screen, which all of its width is on."""
    box: dict[str, float] = shown.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    return box


def test_on_a_narrow_screen_a_figure_is_as_wide_as_that_and_its_menu_covers_none_of_it(
    browser: Any, report: Path
) -> None:
    with opened(browser, report, complains=["error"], viewport={"width": 390, "height": 844}) as page:
        look_at(page, "small")
        page.get_by_role("link", name="Show speedup", exact=True).press("Enter")
        image, menu = page.get_by_role("img", name="speedup", exact=True), page.locator("#app nav").first
        image.wait_for()
        figure, above = shown_in_view(image), shown_in_view(menu)
        assert figure["width"] > 300
        assert figure["y"] >= above["y"] + above["height"]
        page.get_by_role("link", name="Close the menu", exact=True).press("Enter")
        page.wait_for_function("document.querySelector('#app nav').clientHeight === 0")
        assert serious_violations(page) == []
        page.get_by_role("link", name="Open the menu", exact=True).press("Enter")
        page.get_by_role("link", name="Show speedup", exact=True).click()
        assert page.complaints == []


def test_on_a_narrow_screen_the_start_begins_on_it(browser: Any, report: Path) -> None:
    with opened(browser, report, complains=["error"], viewport={"width": 390, "height": 844}) as page:
        shown = page.locator("#app > div > nav + div > *").first
        shown.wait_for()
        assert shown.bounding_box()["x"] >= 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_result_leads_to_the_caption_that_says_how_to_read_it(
    browser: Any, report: Path, width: int, theme: str
) -> None:
    size = {"width": width, "height": 844}
    with opened(browser, report, complains=["error"], viewport=size, color_scheme=theme) as page:
        look_at(page, "small")
        row = page.locator("tr", has=page.get_by_text("speedup", exact=True))
        row.locator("a[iconname=information-circle]").click()
        page.get_by_text("How much faster do N devices train than one?").wait_for()
        assert page.complaints == []


def test_the_explorer_works_within_the_report(page: Any) -> None:
    look_at(page, "small")
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


def test_the_advice_can_be_read_in_it(page: Any) -> None:
    look_at(page, "small")
    page.locator("tr", has=page.get_by_text("advice", exact=True)).locator("a[iconname=eye]").click()
    page.frame_locator("iframe").get_by_role("heading", name="What to do: small").wait_for()
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
