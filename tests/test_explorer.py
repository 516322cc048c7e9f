"""The explorer: every cell and its reason are in the page, and a reader gets from a point to its record."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import opened, serious_violations
from explored import CELLS, EXPERIMENT, MEASURED, PREDICTED, REASON, RERUN, Explored, cell, tables_of
from factories import a_single_trial, a_trial, an_unavailable_record, explained_record, repeats

from dpscale.config import FigureConfig
from dpscale.explorer.cells import cells_of, looks_of, trials_of
from dpscale.explorer.page import render
from dpscale.explorer.views import Views
from dpscale.figures import FIGURES
from dpscale.figures.causes import PARTS
from dpscale.figures.parts import hatch_of
from dpscale.tables.schema import Measured

SCRIPT = Path(__file__).parents[1] / "scripts" / "explore.py"
SOURCE = "records.csv sha256:0123"


def page_of(rows: list[Measured]) -> str:
    return render(EXPERIMENT, tables_of(rows), FigureConfig(), RERUN, SOURCE)


class Scripts(HTMLParser):
    """The texts of a page's scripts, as a browser tells them apart."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str | None, str]] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.inside = True
            self.found.append((dict(attrs).get("type"), ""))

    def handle_data(self, data: str) -> None:
        if self.inside:
            kind, text = self.found[-1]
            self.found[-1] = kind, text + data

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "script"


# What the page knows


def test_a_cell_has_what_its_tables_say():
    tables = tables_of(MEASURED, PREDICTED)
    cells = cells_of(tables)
    assert cells["cell"] == CELLS
    row = CELLS.index("ddp/torchrun/1x2")
    (expected,) = cell(tables["summary"], "ddp/torchrun/1x2").itertuples()
    for name in ("speedup", "speedup_low", "speedup_high", "scaling_efficiency", "utilization_percent", "epoch_time_s"):
        assert cells[name][row] == pytest.approx(getattr(expected, name), rel=1e-5)
    assert (cells["repeats"][row], cells["spread"][row]) == (3, "range of 3")
    assert (cells["topology"][row], cells["precision"][row], cells["devices"][row]) == ("1x2", "fp32", 2)


def test_linear_scaling_is_linear_at_every_number_of_devices():
    """The axis of N is logarithmic: a straight line from end to end would promise 8 devices more than 8 times."""
    plot = Views([1, 2, 16], [], FigureConfig()).over_devices("speedup", "speedup_spread")
    drawn = plot.select_one({"name": "linear"}).data_source.data
    assert drawn["x"] == drawn["y"]
    assert max(after / before for before, after in pairwise(drawn["x"])) < 1.1


def test_causes_and_predictions_are_those_of_the_same_cell():
    tables = tables_of(MEASURED, PREDICTED)
    cells = cells_of(tables)
    row = CELLS.index("ddp/spawn/1x2")
    (causes,) = cell(tables["causes"], "ddp/spawn/1x2").itertuples()
    assert cells["step_s"][row] == pytest.approx(causes.step_s, rel=1e-5)
    assert cells["transfer_s"][row] == pytest.approx(causes.transfer_s, rel=1e-5)
    assert cells["cause_rounds"][row] == 6
    assert cells["predicted_epoch_time_s"][row] == 2.3
    assert [cells["step_s"][CELLS.index(name)] for name in ("single/spawn/1x1", "half/spawn/1x2")] == [None, None]


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("data_parallel/spawn/1x2", "unavailable", REASON),
        ("ddp/spawn/1x4", "missing", "not measured yet"),
        ("ddp/spawn/1x8", "not planned", "it is predicted only"),
    ],
)
def test_what_was_not_measured_has_its_reason_and_no_number(name: str, status: str, reason: str):
    cells = cells_of(tables_of(MEASURED, PREDICTED))
    row = CELLS.index(name)
    assert (cells["status"][row], cells["reason"][row]) == (status, reason)
    assert {cells[column][row] for column in ("speedup", "epoch_time_s", "utilization_percent", "step_s")} == {None}
    assert cells["repeats"][row] == 0


def test_of_several_predictions_the_latest_of_measured_parts_counts():
    earlier = {**PREDICTED[1], "current": False, "predicted_epoch_time_s": 9.0}
    law = {**PREDICTED[1], "model": "amdahl", "predicted_epoch_time_s": 8.0}
    cells = cells_of(tables_of(MEASURED, [earlier, law, *PREDICTED]))
    assert cells["cell"] == CELLS
    assert cells["predicted_epoch_time_s"][CELLS.index("ddp/spawn/1x4")] == 2.6


def test_each_trial_leads_to_its_record_from_the_pages_folder():
    trials = trials_of(tables_of(MEASURED, PREDICTED))
    found = dict(zip(zip(trials["cell"], trials["repeat"], strict=True), trials["record"], strict=True))
    assert found["ddp/torchrun/1x2", 2] == "trials/ddp/torchrun/1x2/r2/record.json"
    assert found["data_parallel/spawn/1x2", 0] == "trials/data_parallel/spawn/1x2/r0/record.json"  # it says why
    assert found["ddp/spawn/1x4", 0] is None


def test_points_of_several_lines_at_one_n_lie_beside_each_other():
    cells = cells_of(tables_of(MEASURED, PREDICTED))
    at_two = [place for place, devices in zip(cells["place"], cells["devices"], strict=True) if devices == 2]
    assert len(set(at_two)) == len(at_two)
    assert all(place == pytest.approx(2, rel=0.06) for place in at_two)


def test_strategies_are_told_apart_by_marks_as_well_as_by_the_figures_colours():
    looks = looks_of(tables_of(MEASURED)["summary"], FigureConfig())
    assert list(looks) == ["single", "ddp", "half", "data_parallel"]
    assert looks["single"]["colour"] == "#0173b2"  # seaborn's colorblind
    assert len({look["mark"] for look in looks.values()}) == len({look["colour"] for look in looks.values()}) == 4


# The page as a file


def test_the_same_tables_make_the_same_page(tmp_path: Path):
    for name, table in tables_of(MEASURED, PREDICTED).items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    pages = [tmp_path / "one.html", tmp_path / "other.html"]
    for page in pages:
        command = [SCRIPT, EXPERIMENT, f"--tables={tmp_path}", f"--rerun={RERUN}", f"--out={page}"]
        subprocess.run([sys.executable, *map(str, command)], check=True)
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_page_is_below_4_megabytes():
    assert len(page_of(MEASURED).encode()) < 4e6


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(a_single_trial(), None, None)],
        repeats(a_trial(), [2.0]),  # no base
        repeats(a_single_trial(), [2.0]),
        [item for number in range(30) for item in repeats(a_trial(strategy=f"ddp_{number}"), [2.0])],
    ],
    ids=["no cell", "nothing measured", "no base", "one cell", "thirty strategies"],
)
def test_a_page_is_made_of_whatever_was_measured(rows: list[Measured]):
    assert "NaN" not in next(text for kind, text in Scripts(page_of(rows)).found if kind == "application/json")


BREAK_OUT = "</script><script>alert(1)</script><!-- <script>"


def test_no_text_breaks_out_of_the_payload():
    trial = a_trial(strategy="data_parallel")
    page = page_of([*repeats(a_single_trial(), [2.0]), (trial, an_unavailable_record(trial, BREAK_OUT), None)])
    scripts = Scripts(page).found
    assert [kind for kind, _ in scripts] == ["application/json", None, None]
    assert BREAK_OUT in json.loads(scripts[0][1])["cells"]["reason"]


def test_the_page_allows_its_own_scripts_and_no_network():
    page = page_of(MEASURED)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    scripts = [text for kind, text in Scripts(page).found if kind is None]
    digests = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts}
    assert set(rules["script-src"].split()) == {f"'sha256-{digest}'" for digest in digests}
    assert rules["default-src"] == "'none'"
    assert "http" not in policy


# The page in a browser

PHONE, SCREEN = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
SIZES = pytest.mark.parametrize("size", [SCREEN, PHONE], ids=["1280", "390"])
THEMES = pytest.mark.parametrize("theme", ["light", "dark"])
POINTS = """() => {
  const view = [...Bokeh.index.roots].find(({ model }) => model === bokeh.roots()[0]);
  const box = document.getElementById("view-speedup").getBoundingClientRect();
  const { x_scale: x, y_scale: y } = view.frame;
  return Object.fromEntries(state.shown.map(index => [
    cells.cell[index],
    [box.x + x.compute(cells.place[index]), box.y + y.compute(cells.speedup[index])],
  ]));
}"""  # where the cells' points of the first view lie on the screen
COLOURS = "[getComputedStyle(document.body).backgroundColor, bokeh.roots()[0].left[0].axis_label_text_color]"


@pytest.fixture(scope="module")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Explored:
    return Explored.made(tmp_path_factory.mktemp("results") / EXPERIMENT)


@pytest.fixture
def page(browser: Any, explored: Explored) -> Iterator[Any]:
    with opened(browser, explored.page, viewport=SCREEN) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        yield page
        assert page.complaints == []


def listed(page: Any) -> list[str]:
    return [name.strip(" \n●■◆▲▼⬢★✚✦") for name in page.locator("#rows button").all_inner_texts()]


def chip(page: Any, value: str) -> Any:
    """The filter of a value."""
    return page.get_by_role("checkbox", name=value, exact=True)


def rows_shown(page: Any) -> list[str]:
    """Cells that the views show."""
    return page.evaluate("() => state.shown.map(index => cells.cell[index])")


@SIZES
@THEMES
def test_it_opens_without_a_network_and_an_error_and_is_accessible(
    browser: Any, explored: Explored, size: dict[str, int], theme: str
):
    with opened(browser, explored.page, "#ddp/spawn/1x2", viewport=size, color_scheme=theme) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.locator("html").get_attribute("data-theme") == theme
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        for view in ("speedup", "efficiency", "utilization", "causes", "prediction"):
            box = page.locator(f"#view-{view} canvas").first.bounding_box()
            assert box["width"] > 0.7 * min(size["width"], 600), view
        assert serious_violations(page) == []
        assert page.complaints == []


@SIZES
def test_filters_narrow_every_view_the_list_and_what_was_not_measured(
    browser: Any, explored: Explored, size: dict[str, int]
):
    with opened(browser, explored.page, viewport=size) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.locator("#count").inner_text() == "8 of 8 cells shown, 3 of them not measured"
        chip(page, "ddp").check()
        chip(page, "spawn").check()
        expected = [name for name in CELLS if name.startswith("ddp/spawn/")]
        assert listed(page) == rows_shown(page) == expected
        assert page.evaluate("model('shown').filter.indices.map(index => cells.cell[index])") == expected
        assert page.evaluate("model('lines').data.places.length") == 1
        assert page.evaluate("model('bars').data.cell") == expected[:2]
        assert page.locator("#absent dd").all_inner_texts() == ["ddp/spawn/1x4", "ddp/spawn/1x8"]

        chip(page, "1x2").check()
        assert listed(page) == ["ddp/spawn/1x2"]
        assert page.locator("#absent").is_hidden()
        page.get_by_role("button", name="Show all").click()
        assert listed(page) == CELLS
        assert page.complaints == []


def test_precision_is_a_filter_too(page: Any):
    chip(page, "bf16").check()
    assert listed(page) == ["half/spawn/1x2"]


def test_a_filter_that_leaves_nothing_to_draw_says_so(page: Any):
    chip(page, "data_parallel").check()
    assert page.locator("#view-speedup").is_hidden()
    assert "No cell that is shown was measured" in page.locator("#view-speedup + .nothing").inner_text()
    assert page.locator("#absent").inner_text().split("\n")[1:] == [f"unavailable: {REASON}", "data_parallel/spawn/1x2"]


def test_pointing_at_a_cell_shows_its_interval_and_n_and_rings_it_in_every_view(page: Any):
    x, y = page.evaluate(POINTS)["ddp/torchrun/1x2"]
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    tip = page.locator(".tip:visible")
    tip.wait_for()
    speedup = cell(tables_of(MEASURED)["summary"], "ddp/torchrun/1x2").iloc[0]
    assert f"{speedup.speedup:.3f} ({speedup.speedup_low:.3f} to {speedup.speedup_high:.3f})" in tip.inner_text()
    assert "n = 3, range of 3" in tip.inner_text()
    ring = page.evaluate("model('pointed').data")
    assert ring["scaling_efficiency"] == [pytest.approx(speedup.scaling_efficiency, rel=1e-5)]
    assert ring["utilization_percent"] == [pytest.approx(speedup.utilization_percent, rel=1e-5)]
    assert "ddp/torchrun/1x2" in page.locator("#rows tr.pointed").inner_text()
    page.mouse.move(5, 5)
    page.wait_for_function("model('pointed').data.place.length === 0")


def test_choosing_a_point_marks_it_everywhere_and_leads_to_its_trials(page: Any):
    x, y = page.evaluate(POINTS)["ddp/spawn/1x2"]
    page.mouse.click(x, y)
    page.locator("#details.chosen").wait_for()
    assert page.locator("#title-details").inner_text() == "ddp/spawn/1x2"
    assert page.evaluate("model('cells').selected.indices") == [CELLS.index("ddp/spawn/1x2")]
    assert page.evaluate("model('bars').data.cell[model('bars').selected.indices[0]]") == "ddp/spawn/1x2"
    assert page.locator("#rows tr.chosen button").get_attribute("aria-pressed") == "true"
    assert page.url.endswith("#ddp/spawn/1x2")
    facts = page.locator(".facts").inner_text()
    assert "2.3 s (2.07 to 2.53 for 4 of 5 launches; calibrated from)" in facts


def test_a_prediction_far_beyond_what_is_planned_stretches_its_own_view_only(page: Any):
    ends = page.evaluate("[0, 4].map(view => bokeh.roots()[view].x_range.end)")
    assert [end / 1.3 for end in ends] == [pytest.approx(4), pytest.approx(8)]


def test_choosing_a_bar_of_causes_chooses_its_cell(page: Any):
    page.evaluate("model('bars').selected.indices = [0]")
    assert page.locator("#title-details").inner_text() == "ddp/spawn/1x1"
    page.get_by_role("button", name="Close").click()
    assert page.evaluate("[model('bars').selected.indices, model('cells').selected.indices]") == [[], []]


@SIZES
@pytest.mark.parametrize("kind", ["record", "log"])
def test_a_link_leads_to_what_a_trial_left(browser: Any, explored: Explored, kind: str, size: dict[str, int]):
    with opened(browser, explored.page, "#ddp/torchrun/1x2", viewport=size) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        link = page.get_by_role("link", name=f"{kind} of ddp/torchrun/1x2 r1")
        file = {"record": "record.json", "log": "trial.log"}[kind]
        assert Path(link.evaluate("link => link.pathname")) == explored.folder / f"trials/ddp/torchrun/1x2/r1/{file}"
        link.click()
        page.wait_for_url(f"**/r1/{file}")
        assert "quickstart/trials/ddp/torchrun/1x2/r1/record.json" in page.locator("body").inner_text()
        assert page.complaints == []


def test_the_command_of_a_trial_can_be_copied(browser: Any, explored: Explored):
    with opened(browser, explored.page, "#ddp/spawn/1x4", viewport=SCREEN) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.locator("#details a").count() == 0  # it was never measured
        page.get_by_role("button", name="Copy the command for ddp/spawn/1x4 r0").click()
        page.get_by_text("Copied").wait_for()
        command = "snakemake --cores all --force -- results/quickstart/trials/ddp/spawn/1x4/r0/record.json"
        assert page.evaluate("navigator.clipboard.readText()") == command
        assert page.locator("#details code").inner_text() == command


def test_a_keyboard_reaches_a_cell_and_its_record(page: Any):
    page.get_by_role("button", name="ddp/spawn/1x1").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("cells.cell[state.pointed]") == "ddp/spawn/1x2"  # ringed in the views as by a mouse
    page.keyboard.press("Enter")
    assert page.locator("#title-details").inner_text() == "ddp/spawn/1x2"
    assert page.evaluate("document.activeElement.id") == "title-details"
    for key in ("Tab", "Tab"):  # by way of Close
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.ariaLabel") == "record of ddp/spawn/1x2 r0"
    page.keyboard.press("Escape")
    assert page.locator("#details.chosen").count() == 0
    assert page.evaluate("document.activeElement.innerText").endswith("ddp/spawn/1x2")  # back on its row


@SIZES
def test_a_click_on_a_row_brings_its_cell_into_sight(browser: Any, explored: Explored, size: dict[str, int]):
    with opened(browser, explored.page, viewport=size) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        page.get_by_role("button", name="half/spawn/1x2").click()
        title = page.locator("#title-details").bounding_box()
        assert 0 <= title["y"] < size["height"]
        page.get_by_role("button", name="Close").click()
        assert page.evaluate("document.activeElement.innerText").endswith("half/spawn/1x2")


def test_views_are_named_pictures_that_a_keyboard_passes_by(page: Any):
    assert page.evaluate("plotViews().map(view => view.canvas_view.events_el.tabIndex)") == [-1] * 5
    assert page.get_by_role("img", name=FIGURES["speedup"].question).count() == 1


@pytest.mark.parametrize("address", ["#%E0%A4%A", "#nobody/spawn/1x1"])
def test_an_address_of_no_cell_chooses_none(browser: Any, explored: Explored, address: str):
    with opened(browser, explored.page, address, viewport=SCREEN) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.evaluate("state.chosen") is None
        assert page.complaints == []


def test_another_address_in_an_open_page_chooses_its_cell_whatever_the_filters(page: Any):
    chip(page, "half").check()
    page.evaluate("location.hash = '#ddp/spawn/1x2'")
    page.locator("#details.chosen").wait_for()
    assert page.locator("#title-details").inner_text() == "ddp/spawn/1x2"
    assert listed(page) == CELLS


def test_every_view_says_what_its_signs_are_and_hatched_parts_have_hatched_legends(page: Any):
    words = {"speedup": "linear", "efficiency": "linear", "utilization": "medians", "causes": "Diamond"}
    for view, word in {**words, "prediction": "Wide bands"}.items():
        assert word in page.locator(f"#view-{view} ~ .key").inner_text()
    legend = "[...document.querySelectorAll('#causes-legend .hatch')].map(path => path.getAttribute('d') !== '')"
    assert page.evaluate(legend) == [bool(hatch_of(part)) for part in PARTS]


def test_the_linear_line_is_none_of_the_launchers():
    plot = Views([1, 2], [], FigureConfig()).over_devices("speedup", "speedup_spread")
    linear = plot.select_one({"name": "linear"}).glyph
    assert linear.line_dash == []  # which all but the first launcher's has
    assert linear.line_width > 3 * 1.5  # which is a launcher's


def test_speedups_are_apart_over_any_number_of_devices():
    """On a linear axis up to 4096, 1 and 32 are one point."""
    plot = Views([1, 32, 4096], [], FigureConfig()).over_devices("speedup", "speedup_spread")
    assert type(plot.y_scale).__name__ == type(plot.x_scale).__name__ == "LogScale"


def test_long_names_keep_to_a_phone_and_every_column_is_reached(browser: Any, tmp_path: Path):
    file = tmp_path / "explore.html"
    alike = [explained_record(a_trial(strategy=f"{'x' * 40}{letter}{'x' * 39}", explain=True)) for letter in "ab"]
    file.write_text(page_of([*repeats(a_single_trial(), [2.0]), *repeats(a_trial(strategy="x" * 80), [2.0]), *alike]))
    with opened(browser, file, f"#{'x' * 80}/spawn/1x2", viewport=PHONE) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert page.locator("th.column-utilization_percent").is_visible()
        assert len({*page.evaluate("model('causes_range').factors")}) == len(alike)
        name, long_name, *_ = (button.bounding_box()["height"] for button in page.locator("#rows button").all())
        assert name < long_name  # that of a usual length stays on its line
        assert page.locator("#theme").bounding_box()["height"] < 40
        assert page.get_by_role("link", name="record of").first.bounding_box()["height"] >= 24
        assert page.complaints == []


def test_labels_are_told_apart_by_what_is_the_same_and_not_by_what_begins_so(page: Any):
    names = ["ddp/spawn/1x16", "ddp/spawn/1x1", "ddp/spawn/1x1"]
    assert page.evaluate(f"labelsOf({names})") == ["ddp/spawn/1x16", "ddp/spawn/1x1", "ddp/spawn/1x1 (2)"]


def test_a_filter_is_worked_by_the_keyboard(page: Any):
    chip(page, "torchrun").focus()
    page.keyboard.press("Space")
    assert listed(page) == ["ddp/torchrun/1x2"]


def test_the_list_sorts_with_what_has_no_value_last(page: Any):
    speedup = page.locator("th.column-speedup")
    shown = "[...document.querySelectorAll('td.column-speedup')].map(cell => parseFloat(cell.innerText) || null)"
    numbers = sorted(value for value in page.evaluate(shown) if value is not None)
    nothing = [None] * (len(CELLS) - len(numbers))
    speedup.get_by_role("button").click()
    assert speedup.get_attribute("aria-sort") == "ascending"
    assert page.evaluate(shown) == [*numbers, *nothing]
    speedup.get_by_role("button").click()
    assert speedup.get_attribute("aria-sort") == "descending"
    assert page.evaluate(shown) == [*reversed(numbers), *nothing]


def test_the_switch_changes_the_colours_of_page_and_views_and_is_remembered(page: Any):
    light = page.evaluate(COLOURS)
    page.get_by_role("button", name="Switch to dark colours").click()
    dark = page.evaluate(COLOURS)
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.evaluate(COLOURS) == dark
    page.get_by_role("button", name="Switch to light colours").click()


PRINTED = f"() => addEventListener('beforeprint', () => (window.printed = {COLOURS}))"


def test_a_print_is_light_and_has_the_legend(browser: Any, explored: Explored, tmp_path: Path):
    with opened(browser, explored.page, viewport=SCREEN, color_scheme="dark") as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        dark = page.evaluate(COLOURS)
        page.evaluate(PRINTED)
        page.pdf(path=tmp_path / "print.pdf")
        assert page.evaluate("window.printed") == ["rgb(246, 247, 249)", "#55606e"]
        assert page.evaluate(COLOURS) == dark  # on the screen it is as it was

        page.emulate_media(media="print")
        page.wait_for_selector("html[data-theme=light]", state="attached")
        assert page.locator(".chip .sign").first.is_visible()
        assert page.locator(".chip .dash").first.is_visible()
        assert page.complaints == []


def test_a_long_list_comes_in_pages_and_a_chosen_cell_brings_its_own(browser: Any, tmp_path: Path):
    rows = [item for number in range(40) for item in repeats(a_trial(strategy=f"ddp_{number:02}"), [2.0])]
    file = tmp_path / "explore.html"
    file.write_text(page_of(rows))
    with opened(browser, file, viewport=SCREEN) as page:
        page.wait_for_selector("html[data-ready]", state="attached")
        assert len(listed(page)) == 25
        page.get_by_role("button", name="Next").click()
        assert listed(page) == [f"ddp_{number}/spawn/1x2" for number in range(25, 40)]
        page.evaluate("state.set('chosen', 0)")
        assert listed(page)[0] == "ddp_00/spawn/1x2"
        assert page.complaints == []


def test_it_asks_the_questions_of_the_figures():
    questions = {"speedup", "efficiency", "utilization", "causes", "prediction"}
    page = page_of(MEASURED)
    assert all(f">{FIGURES[name].question}</h2>" in page for name in questions)
