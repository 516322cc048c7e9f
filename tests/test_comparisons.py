"""Which strategy is faster than which: a verdict takes enough launches, a rank test and an interval."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from factories import a_single_trial, a_trial, an_unavailable_record, repeats
from hypothesis import given, settings
from hypothesis import strategies as st

from dpscale import statistics
from dpscale.tables import make_tables
from dpscale.trial import PLACEBO

ONE, TWO, THREE = (a_trial(strategy=name, base="ddp") for name in ("one", "two", "three"))
SEVEN = [2.0, 2.01, 2.02, 2.03, 2.04, 2.05, 2.06]


def comparisons_of(*cells) -> pd.DataFrame:
    return make_tables([item for cell in cells for item in cell])["comparisons"]


def verdict_of(*cells) -> str:
    (verdict,) = comparisons_of(*cells).verdict
    return verdict


def times(factor: float) -> list[float]:
    return [factor * epoch_s for epoch_s in SEVEN]


def test_every_two_strategies_in_one_place_are_a_pair_the_later_against_the_earlier():
    pairs = comparisons_of(*(repeats(trial, [2.0]) for trial in (ONE, TWO, THREE)))
    assert list(zip(pairs.strategy, pairs.other, strict=True)) == [("two", "one"), ("three", "one"), ("three", "two")]


@pytest.mark.parametrize("change", [{"launcher": "torchrun"}, {"devices_per_node": 4}, {"nodes": 2}])
def test_in_different_places_they_are_none(change):
    elsewhere = a_trial(strategy="two", base="ddp", **change)
    assert comparisons_of(repeats(ONE, [2.0]), repeats(elsewhere, [2.0])).empty


@pytest.mark.parametrize("record", [None, an_unavailable_record(TWO)])
def test_what_was_not_measured_is_in_no_pair(record):
    assert comparisons_of(repeats(ONE, [2.0]), [(TWO, record, None)]).empty


def test_one_that_takes_half_as_long_in_every_launch_is_faster():
    (pair,) = comparisons_of(repeats(ONE, times(2)), repeats(TWO, SEVEN)).itertuples()
    assert pair.verdict == "faster"
    assert pair.throughput_ratio == pytest.approx(2.0)
    assert 1 < pair.throughput_ratio_low < 2 < pair.throughput_ratio_high
    assert pair.cliffs_delta == 1.0
    assert (pair.repeats, pair.other_repeats, pair.spread) == (7, 7, "95 % interval")


def test_one_that_takes_twice_as_long_is_slower():
    assert verdict_of(repeats(ONE, SEVEN), repeats(TWO, times(2))) == "slower"


def test_launches_that_overlap_show_no_difference():
    assert verdict_of(repeats(ONE, SEVEN), repeats(TWO, times(1.01))) == "no difference shown"


@pytest.mark.parametrize(("launches", "verdict"), [(5, "too few repeats: it takes 6 of each"), (6, "faster")])
def test_with_too_few_launches_the_verdict_says_how_many_it_takes(launches, verdict):
    assert verdict_of(repeats(ONE, times(2)[:launches]), repeats(TWO, SEVEN[:launches])) == verdict


def test_many_pairs_take_more_launches_than_one():
    """Eight strategies are 28 pairs: were samples of 6 far apart in each of them, that could be chance in one."""
    cells = [repeats(a_trial(strategy=f"s{i}", base="ddp"), [(1 + i) * value for value in SEVEN[:6]]) for i in range(8)]
    pairs = comparisons_of(*cells)
    assert set(pairs.verdict) == {"too few repeats: it takes 7 of each"}
    assert set(pairs.repeats_needed) == {7}


def test_p_values_are_adjusted_for_all_pairs_of_the_table():
    pairs = comparisons_of(repeats(ONE, SEVEN), repeats(TWO, times(2)), repeats(THREE, times(1.004)))
    assert pairs.p_value_holm.tolist() == pytest.approx(statistics.holm(pairs.p_value.tolist()))
    assert (pairs.p_value_holm >= pairs.p_value).all()


def test_pairs_that_can_not_be_tested_take_nothing_from_those_that_can():
    """Of eight strategies six were launched once: 27 of 28 pairs can show nothing, and the other is judged by itself."""
    once = [repeats(a_trial(strategy=f"s{number}", base="ddp"), [2.0]) for number in range(6)]
    pairs = comparisons_of(repeats(ONE, times(2)[:6]), repeats(TWO, SEVEN[:6]), *once)
    tested = pairs[pairs.p_value_holm.notna()]
    assert tested[["strategy", "other", "verdict", "repeats_needed"]].to_numpy().tolist() == [
        ["two", "one", "faster", 6]
    ]
    assert tested.p_value_holm.tolist() == tested.p_value.tolist()
    assert set(pairs.drop(tested.index).verdict) == {"too few repeats: it takes 7 of each"}  # if all had as many


def test_the_ratio_is_of_throughputs_where_batches_differ():
    """Twice the samples in the same time is twice as fast, and the table says what differs."""
    large = replace(TWO, batch_size_per_device=64)
    (pair,) = comparisons_of(repeats(ONE, SEVEN), repeats(large, SEVEN)).itertuples()
    assert pair.throughput_ratio == pytest.approx(2.0)
    assert pair.differs_in == "global_batch_size: 128, there 64"


def test_a_pair_agrees_with_the_speedup_over_the_same_cell():
    single = a_single_trial()
    one_device = replace(ONE, devices_per_node=1, world_size=1)
    tables = make_tables([*repeats(single, SEVEN), *repeats(one_device, times(1.3))])
    pair, cell = tables["comparisons"].iloc[0], tables["summary"].iloc[1]
    assert (pair.throughput_ratio, pair.throughput_ratio_low, pair.throughput_ratio_high) == (
        cell.speedup,
        cell.speedup_low,
        cell.speedup_high,
    )


@settings(max_examples=15)
@given(*[st.lists(st.floats(0.5, 2.0), min_size=1, max_size=8)] * 2)
def test_nobody_is_faster_whose_interval_or_test_does_not_say_so(mine, other):
    (pair,) = comparisons_of(repeats(ONE, other), repeats(TWO, mine)).itertuples()
    if pair.verdict in ("faster", "slower"):
        assert pair.p_value_holm <= 0.05
        assert min(pair.repeats, pair.other_repeats) >= 6
        low, high = pair.throughput_ratio_low, pair.throughput_ratio_high
        assert low > 1 if pair.verdict == "faster" else high < 1


# The placebo


def with_placebo(epochs_s: list[float], again_s: list[float]):
    """Two cells, and the first again under another name."""
    placebo = replace(ONE, strategy=PLACEBO)
    return repeats(ONE, epochs_s), repeats(TWO, SEVEN), repeats(placebo, again_s)


def test_the_placebo_is_compared_with_its_twin_alone():
    pairs = comparisons_of(*with_placebo(SEVEN, SEVEN))
    assert list(zip(pairs.strategy, pairs.other, strict=True)) == [("two", "one"), (PLACEBO, "one")]
    assert pairs.verdict.tolist() == ["no difference shown"] * 2


def test_its_p_value_stands_alone():
    pairs = comparisons_of(*with_placebo(SEVEN, SEVEN)).set_index("strategy")
    assert pd.isna(pairs.loc[PLACEBO].p_value_holm)
    assert pairs.loc["two"].p_value_holm == pairs.loc["two"].p_value  # one pair


def test_a_placebo_that_differs_is_called_so_and_warned_of():
    tables = make_tables([item for cell in with_placebo(SEVEN, times(2)) for item in cell])
    assert tables["comparisons"].set_index("strategy").loc[PLACEBO].verdict == "differs, which it must not"
    assert "the placebo differs from its twin" in tables["summary"].set_index("strategy").loc[PLACEBO].warnings


def test_the_noise_floor_is_the_largest_difference_that_the_interval_lets_in():
    tables = make_tables([item for cell in with_placebo([2.0, 2.0], [2.0, 2.5]) for item in cell])
    summary = tables["summary"].set_index("strategy")
    assert summary.loc[PLACEBO].placebo_of == "one"
    assert summary.loc[PLACEBO].noise_floor_percent == pytest.approx(25.0)
    assert summary.loc["one"].placebo_of == ""
    assert pd.isna(summary.loc["one"].noise_floor_percent)


def test_a_placebo_is_of_the_variant_with_its_options():
    small = replace(ONE, strategy="small", options={"bucket_cap_MiB": 1})
    placebo = replace(small, strategy=PLACEBO)
    tables = make_tables([*repeats(ONE, [2.0]), *repeats(small, [2.0]), *repeats(placebo, [2.0])])
    assert tables["summary"].set_index("strategy").loc[PLACEBO].placebo_of == "small"


def test_without_a_measurement_of_both_there_is_no_noise_floor():
    one, two, _ = with_placebo(SEVEN, SEVEN)
    missing = [(replace(ONE, strategy=PLACEBO), None, None)]
    row = make_tables([*one, *two, *missing])["summary"].set_index("strategy").loc[PLACEBO]
    assert (row.status, row.placebo_of) == ("missing", "one")
    assert pd.isna(row.noise_floor_percent)


def test_a_placebo_is_nobodys_base():
    single = a_single_trial()
    placebo = replace(single, strategy=PLACEBO)
    tables = make_tables([*repeats(placebo, [1.0]), *repeats(single, [2.0])])
    assert set(tables["summary"].base_cell) == {"single/spawn/1x1"}
