"""Two result sets: what became faster or slower takes enough launches, a rank test and an interval; and what else changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import pytest
from factories import MACHINE

import compare
from dpscale.config import FigureConfig
from dpscale.figures import make_figure, render
from dpscale.tables.changes import Occasion, changes, environment_changes
from dpscale.tables.schema import OF_TWO_SETS, frame

LAUNCHED = count()  # no two launches are the same
TEN = [2.0 + i / 1000 for i in range(10)]
Cells = Mapping[str, Sequence[float]]


def of_cell(strategy: str) -> dict[str, Any]:
    return {"experiment": "small", "strategy": strategy, "launcher": "spawn", "nodes": 1, "devices_per_node": 2}


def an_occasion(cells: Cells, asked: Mapping[str, Any] | None = None, name: str = "made", **facts: Any) -> Occasion:
    """Strategies with the epoch times of their launches; none at all makes one unavailable."""
    rows = []
    for strategy, epochs_s in cells.items():
        base = {**of_cell(strategy), "devices": 2}
        for repeat, epoch_s in enumerate(epochs_s):
            rates = {"throughput_samples_per_s": 1000 / epoch_s, "train_samples_per_epoch": 1000.0}
            when = {"started_at": f"2026-01-01T00:0{repeat % 10}", "ended_at": f"2026-01-01T00:1{repeat % 10}"}
            rows.append({**base, "repeat": repeat, "status": "ok", "epoch_time_s": epoch_s, **rates, **when})
        if not epochs_s:
            rows.append({**base, "repeat": 0, "status": "unavailable", "reason": "needs CUDA devices"})
    same = {"model": "convnet", "precision": "fp32"} | dict(asked or {})
    keys = [tuple(of_cell(strategy).values()) for strategy, epochs_s in cells.items() if epochs_s]
    timings = frame("timings", rows)
    timings["record_sha256"] = [str(next(LAUNCHED)) if row.status == "ok" else None for row in timings.itertuples()]
    return Occasion(name, timings, dict.fromkeys(keys, same), [MACHINE | facts])


def changed(before: Cells, after: Cells) -> pd.DataFrame:
    return changes(an_occasion(before), an_occasion(after)).set_index("strategy")


def times(factor: float, epochs_s: Sequence[float] = TEN) -> list[float]:
    return [factor * epoch_s for epoch_s in epochs_s]


def test_a_cell_that_takes_twice_as_long_in_every_launch_is_slower():
    row = changed({"ddp": TEN}, {"ddp": times(2)}).loc["ddp"]
    assert row.verdict == "slower"
    assert row.throughput_ratio == pytest.approx(0.5)
    assert row.throughput_ratio_low < 0.5 < row.throughput_ratio_high
    assert (row.cliffs_delta, row.spread) == (-1.0, "95 % interval")
    assert row.epoch_time_after_s == pytest.approx(2 * row.epoch_time_before_s)


def test_one_that_takes_half_as_long_is_faster():
    assert changed({"ddp": TEN}, {"ddp": times(0.5)}).loc["ddp"].verdict == "faster"


def test_equal_times_of_other_launches_show_no_difference():
    row = changed({"ddp": TEN}, {"ddp": TEN}).loc["ddp"]
    assert (row.verdict, row.throughput_ratio, row.cliffs_delta) == ("no difference shown", 1.0, 0.0)


def test_a_set_against_itself_compares_nothing_and_says_which_launches_are_the_same():
    before = an_occasion({"ddp": TEN, "single": TEN})
    rows = changes(before, before)
    assert set(rows.verdict) == {"the same launches"}
    assert rows.p_value.isna().all()
    assert compare.exit_code(rows) == compare.CANNOT_COMPARE
    assert printed(before, before).splitlines()[-1] == (
        "NOT COMPARED: small: all its cells: the very launches of before; measure again, then compare"
    )


def test_a_cell_that_was_not_measured_again_is_named_and_the_others_are_compared():
    before = an_occasion({"ddp": TEN, "single": TEN})
    after = also(before, "single", an_occasion({"ddp": times(2), "single": TEN}), "ddp")
    rows = changes(before, after).set_index("strategy")
    assert rows.verdict.to_dict() == {"ddp": "slower", "single": "the same launches"}
    assert "NOT COMPARED: small: single/spawn/1x2: the very launches of before" in printed(before, after)


def test_launches_of_both_sets_count_as_before_alone():
    """As `make more` leaves them: the first six, and twice as slow ones since."""
    before, since = an_occasion({"ddp": TEN[:6]}), an_occasion({"ddp": times(2)})
    after = replace(since, timings=pd.concat([before.timings, since.timings], ignore_index=True))
    row = changes(before, after).iloc[0]
    assert (row.repeats_before, row.repeats_after, row.repeats_shared) == (6, 10, 6)
    assert (row.verdict, row.cliffs_delta) == ("slower", -1.0)
    assert "small: 6 launches are in both sets; they count as measured before alone." in printed(before, after)


def also(before: Occasion, kept: str, after: Occasion, anew: str) -> Occasion:
    """An occasion at which one strategy was measured anew and the other is as it was."""
    parts = (
        before.timings[before.timings.strategy == kept],
        after.timings[after.timings.strategy == anew],
    )
    return replace(after, timings=pd.concat(parts, ignore_index=True))


def test_p_values_are_adjusted_for_all_cells_that_are_compared():
    rows = changed({"one": TEN, "two": TEN, "gone": TEN}, {"one": times(1.1), "two": TEN})
    assert rows.loc["one"].p_value_holm == pytest.approx(2 * rows.loc["one"].p_value)


@pytest.mark.parametrize(("launches", "verdict"), [(5, "too few repeats: it takes 6 of each"), (6, "slower")])
def test_with_too_few_launches_a_cell_says_how_many_it_takes(launches, verdict):
    row = changed({"ddp": TEN[:launches]}, {"ddp": times(2)[:launches]}).loc["ddp"]
    assert (row.verdict, row.repeats_needed) == (verdict, 6)


def test_many_cells_take_more_launches_than_one():
    cells = {f"s{number}": TEN[:6] for number in range(24)}
    assert set(changed(cells, cells).verdict) == {"too few repeats: it takes 7 of each"}


def test_cells_that_can_not_be_tested_take_nothing_from_one_that_can():
    few = {f"s{number}": TEN[:2] for number in range(23)}
    rows = changed({"ddp": TEN[:6], **few}, {"ddp": times(2)[:6], **few})
    assert (rows.loc["ddp"].verdict, rows.loc["ddp"].repeats_needed) == ("slower", 6)
    assert rows.loc["ddp"].p_value_holm == rows.loc["ddp"].p_value
    assert rows.loc["s0"].verdict == "too few repeats: it takes 7 of each"  # as they would be 24
    assert rows.loc["s0":].p_value_holm.isna().all()


def test_which_cells_are_tested_follows_from_numbers_of_launches_alone():
    """24 of 6 launches: with 6 of each, nothing could be shown among 24; the one with 7 is tested by itself."""
    cells = {f"s{number}": TEN[:6] for number in range(23)} | {"ddp": TEN[:7]}
    for factor in (1, 2):
        rows = changed(cells, {name: times(factor, epochs_s) for name, epochs_s in cells.items()})
        assert rows.index[rows.p_value_holm.notna()].tolist() == ["ddp"]
        assert rows.loc["ddp"].p_value_holm == rows.loc["ddp"].p_value


def test_cells_of_one_set_alone_are_listed():
    rows = changed({"ddp": TEN, "old": TEN}, {"new": TEN, "ddp": TEN})
    assert rows.verdict.to_dict() == {"ddp": "no difference shown", "old": "only before", "new": "only after"}
    assert pd.isna(rows.loc["old"].epoch_time_after_s)
    assert (rows.loc["old"].repeats_before, rows.loc["old"].repeats_after) == (10, 0)


def test_a_cell_that_can_be_measured_no_more_says_why():
    assert changed({"ddp": TEN}, {"ddp": []}).loc["ddp"].verdict == "unavailable after: needs CUDA devices"


def test_a_cell_with_other_settings_is_not_compared_and_says_which():
    before, after = (an_occasion({"ddp": TEN}, {"precision": precision}) for precision in ("fp32", "bf16"))
    (row,) = changes(before, after).itertuples()
    assert (row.verdict, row.differs_in) == ("other settings", "precision: bf16, before fp32")
    assert pd.isna(row.throughput_ratio)


def test_a_setting_that_only_one_format_of_records_knows_is_no_difference():
    (row,) = changes(an_occasion({"ddp": TEN}), an_occasion({"ddp": TEN}, {"explain": False})).itertuples()
    assert row.verdict == "no difference shown"


@pytest.mark.parametrize("table", OF_TWO_SETS)
def test_columns_are_those_of_the_schema(table):
    before, after = an_occasion({"ddp": TEN}), an_occasion({"ddp": TEN}, torch="2.15.0")
    made = {"changes": changes(before, after), "environment_changes": environment_changes(before, after)}
    assert list(made[table].columns) == list(OF_TWO_SETS[table])
    assert len(made[table])


# What else is not the same


def test_facts_that_differ_are_listed_by_name_those_of_the_class_first():
    before = an_occasion({"ddp": TEN}, apex="25.05", code_digest="old", settings={"OMP_NUM_THREADS": "1"})
    after = an_occasion({"ddp": TEN}, code_digest="new", settings={"OMP_NUM_THREADS": "2"})
    rows = environment_changes(before, after).set_index("fact")
    assert rows.index.tolist() == ["code_digest", "apex", "settings.OMP_NUM_THREADS"]
    values = ["before", "after", "of_the_class"]
    assert rows.loc["code_digest", values].tolist() == ["old", "new", True]
    assert rows.loc["settings.OMP_NUM_THREADS", values].tolist() == ["1", "2", False]
    assert pd.isna(rows.loc["apex"].after)


def test_a_fact_that_launches_of_one_set_do_not_share_shows_all_its_values():
    before = an_occasion({"ddp": TEN})
    mixed = replace(before, environments=[MACHINE, MACHINE | {"torch": "2.15.0"}])
    (row,) = environment_changes(before, mixed).itertuples()
    assert (row.fact, row.before, row.after) == ("torch", "2.14.1", "2.14.1 / 2.15.0")


def test_equal_environments_have_no_row():
    assert environment_changes(an_occasion({"ddp": TEN}), an_occasion({"ddp": TEN})).empty


# Whole comparisons of 20 cells, 10 launches of each, 2 % noise

CELLS, LAUNCHES, NOISE, COMPARISONS = 20, 10, 0.02, 100


def noisy(draw: np.random.Generator, slow_down: float = 0.0, few: int = 0) -> Occasion:
    """Each cell of a level of its own; the eighth is slower by `slow_down`; the last `few` have 3 launches."""
    levels = np.linspace(1, 5, CELLS)
    epochs_s = {
        f"s{cell}": (
            level * (1 + slow_down * (cell == 7)) * np.exp(draw.normal(0, NOISE, LAUNCHES if cell < CELLS - few else 3))
        ).tolist()
        for cell, level in enumerate(levels)
    }
    return an_occasion(epochs_s)


def test_the_same_code_twice_gives_a_verdict_in_at_most_5_of_100_comparisons():
    draw = np.random.default_rng(0)
    verdicts = [changes(noisy(draw), noisy(draw)).verdict for _ in range(COMPARISONS)]
    assert sum((of_one != "no difference shown").any() for of_one in verdicts) <= 5


def test_so_it_does_where_only_some_cells_have_enough_launches():
    draw = np.random.default_rng(2)
    verdicts = [changes(noisy(draw, few=15), noisy(draw, few=15)).verdict for _ in range(COMPARISONS)]
    assert sum(of_one.isin(["faster", "slower"]).any() for of_one in verdicts) <= 5


def test_a_slow_down_of_5_percent_in_one_cell_is_found_in_at_least_90_of_100_comparisons():
    draw = np.random.default_rng(1)
    found = [changes(noisy(draw), noisy(draw, slow_down=0.05)) for _ in range(COMPARISONS)]
    assert sum(rows.verdict[7] == "slower" for rows in found) >= 90


# The exit code


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ({"ddp": TEN}, {"ddp": TEN}, 0),
        ({"ddp": TEN}, {"ddp": times(0.5)}, 0),
        ({"ddp": TEN}, {"ddp": TEN, "new": TEN}, 0),
        ({"ddp": TEN}, {"ddp": times(2)}, 3),
        ({"ddp": TEN, "gone": TEN}, {"ddp": times(2)}, 3),
        ({"ddp": TEN, "gone": TEN}, {"ddp": TEN}, 2),
        ({"ddp": TEN, "lost": TEN}, {"ddp": TEN, "lost": []}, 2),
        ({"ddp": TEN, "none": []}, {"ddp": TEN, "none": []}, 0),
        ({"ddp": TEN[:3]}, {"ddp": times(2)[:3]}, 2),
        ({"old": TEN}, {"new": TEN}, 2),
    ],
)
def test_the_exit_code_says_what_was_found(before, after, code):
    assert compare.exit_code(changes(an_occasion(before), an_occasion(after))) == code


def printed(before: Occasion, after: Occasion) -> str:
    tables = {"changes": changes(before, after), "environment_changes": environment_changes(before, after)}
    return "\n".join(compare.described(tables, before, after))


@pytest.mark.parametrize(
    ("few", "said"),
    [
        (TEN, "95 % interval"),
        (TEN[:3], "95 % interval where n is 10, 10 and range of 3 and 10 where n is 3, 10 or 10, 3"),
    ],
)
def test_what_is_in_brackets_is_said_once_and_of_which_cells_it_is(few, said):
    cells = [{"ddp": TEN, "single": few, "apex": TEN}, {"ddp": TEN, "single": TEN, "apex": few}]
    text = printed(*map(an_occasion, cells))
    assert text.count("In brackets") == 1
    assert f"In brackets: {said}. Ratio: after / before" in text


def test_what_differs_is_printed_before_any_cell():
    text = printed(an_occasion({"ddp": TEN}), an_occasion({"ddp": times(2)}, torch="2.15.0"))
    assert text.index("2.14.1") < text.index("2.15.0") < text.index("small/ddp/spawn/1x2")
    assert text.splitlines()[-1] == "SLOWER by 50.0 %: small/ddp/spawn/1x2"


def test_a_cell_that_is_not_compared_is_printed_with_the_reason():
    text = printed(an_occasion({"ddp": TEN[:3]}), an_occasion({"ddp": TEN[:3]}))
    assert "Environment: no recorded fact differs." in text
    assert text.splitlines()[-1] == "NOT COMPARED: small/ddp/spawn/1x2: too few repeats: it takes 6 of each"


# The figure


def tables_of(before: Occasion, after: Occasion) -> dict[str, pd.DataFrame]:
    return {"changes": changes(before, after), "environment_changes": environment_changes(before, after)}


def test_points_of_the_figure_lie_at_the_ratios_and_those_that_are_shown_are_filled():
    tables = tables_of(an_occasion({"one": TEN, "two": TEN}), an_occasion({"one": times(2), "two": TEN}))
    one, two = make_figure("changes", tables, FigureConfig()).axes[0].containers
    assert [point.lines[0].get_xdata()[0] for point in (one, two)] == pytest.approx([0.5, 1.0])
    assert [point.lines[0].get_markerfacecolor() for point in (one, two)] == ["0.1", "white"]


def test_a_figure_that_can_not_hold_all_cells_holds_those_that_changed_and_counts_the_others():
    before = {f"s{number}": TEN for number in range(65)}
    tables = tables_of(an_occasion(before), an_occasion(before | {"s63": times(2), "s64": times(0.5)}))
    figure = make_figure("changes", tables, FigureConfig())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:3] == [
        f"{strategy}/spawn/1x2" for strategy in ("s63", "s64", "s0")
    ]
    foot = " ".join(figure.get_supxlabel().split())
    assert "Cells that are not drawn: 5 no difference shown; see changes.csv." in foot


def test_tables_and_figure_name_both_sets_and_when_they_were_measured():
    tables = tables_of(
        an_occasion({"ddp": TEN}, name="old"), an_occasion({"ddp": TEN}, name="./results", torch="2.15.0")
    )
    when = "10 launches from 2026-01-01T00:00 to 2026-01-01T00:19"
    for table in tables.values():
        assert set(table.set_before) == {f"old, {when}"}
        assert set(table.set_after) == {f"./results, {when}"}
    figure = make_figure("changes", tables, FigureConfig())
    assert figure.get_suptitle().splitlines()[-1] == "old to ./results"
    foot = " ".join(figure.get_supxlabel().split())
    assert foot.startswith(f"Before: old, {when}. After: ./results, {when}.")


def test_the_foot_of_the_figure_says_what_is_not_the_same_before_what_points_are():
    tables = tables_of(an_occasion({"ddp": TEN}), an_occasion({"ddp": TEN}, torch="2.15.0"))
    svg = render("changes", tables, FigureConfig(), ["svg"])["svg"].decode()
    assert "Not the same: torch: 2.14.1 before, 2.15.0 after." in svg
    assert svg.index("Not the same") < svg.index("Points: ratio of medians")


def test_the_figure_is_drawn_where_nothing_can_be_compared():
    tables = tables_of(an_occasion({"old": TEN}), an_occasion({"new": TEN}))
    svg = render("changes", tables, FigureConfig(), ["svg"])["svg"].decode()
    assert "only before" in svg
    assert "only after" in svg
