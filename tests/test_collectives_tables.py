"""What a run of collectives leaves: its files, its table, its figures."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from factories import LAUNCH, MACHINE
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from timed_runs import a_run

from dpscale.collectives.run import FILE, TIMES, Point, Result, write_times
from dpscale.config import FigureConfig
from dpscale.errors import UserError
from dpscale.figures import make_figure
from dpscale.figures.collectives import size_name, time_name
from dpscale.figures.drawing import style
from dpscale.tables.collectives import make_table

# What a run leaves


EQUAL_BLOCKS = [(block, rank, 0.001 * (1 + rank)) for block in range(10) for rank in range(2)]


def times_of(rows: list[tuple[int, int, float]]) -> dict[str, list[Any]]:
    """Columns of times.parquet: (block, rank, seconds) of 10 all-reduces of 65,536 bytes."""
    return {
        "operation": ["all_reduce"] * len(rows),
        "dtype": ["float32"] * len(rows),
        "size_bytes": [65536] * len(rows),
        "calls": [10] * len(rows),
        **{name: [row[index] for row in rows] for index, name in enumerate(("block", "rank", "time_s"))},
    }


def a_result(folder: Path | None = None, **changes: Any) -> Result:
    """An all-reduce that was measured, and a scatter that the backend lacks; with its times in the folder."""
    values: dict[str, Any] = {
        "run": a_run(),
        "status": "ok",
        "environment": dict(MACHINE),
        "nodes": [dict(MACHINE)],
        "launch": dict(LAUNCH),
        "copy_GB_per_s": [8.0, 6.0],
        "oversubscribed": False,
        "points": [
            Point(operation="all_reduce", dtype="float32", size_bytes=65536, calls_per_block=10, blocks=10, checked=20),
            Point(operation="scatter", dtype="float32", size_bytes=65536, reason="gloo can't: no scatter here"),
        ],
        "times_sha256": None if folder is None else write_times(folder / TIMES, times_of(EQUAL_BLOCKS)),
    }
    return Result(**values | changes)


def table_of(*results: Result, rows: list[tuple[int, int, float]] = EQUAL_BLOCKS, **how: Any) -> pd.DataFrame:
    """The table of these results; all have the same times."""
    return make_table([(result.run, result, pd.DataFrame(times_of(rows))) for result in results], **how)


def test_a_result_comes_back_from_its_files(tmp_path: Path):
    result = a_result(tmp_path)
    result.write(tmp_path)
    assert Result.read(tmp_path / FILE) == result


@pytest.mark.parametrize("name", [FILE, TIMES])
def test_a_file_that_was_cut_is_refused(name: str, tmp_path: Path):
    a_result(tmp_path).write(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=f"delete {tmp_path} and run the same command again"):
        Result.read(tmp_path / FILE)


def test_a_result_of_another_format_is_refused(tmp_path: Path):
    a_result(tmp_path).write(tmp_path)
    data = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**data, "format_version": 0}))
    with pytest.raises(UserError, match="format 0"):
        Result.read(tmp_path / FILE)


def test_a_collective_takes_as_long_as_its_slowest_rank():
    row = table_of(a_result()).iloc[0]
    assert row.time_s == pytest.approx(0.002 / 10)
    assert row.algbw_GB_per_s == pytest.approx(65536 / 0.0002 / 1e9)
    assert row.busbw_GB_per_s == pytest.approx(row.algbw_GB_per_s)  # 2 (n - 1) / n = 1 for two ranks
    assert row.copy_GB_per_s == 6.0


def test_bandwidths_turn_the_ends_of_times_around():
    rows = [(block, 0, 0.001 * (1 + block)) for block in range(10)]
    row = table_of(a_result(), rows=rows).iloc[0]
    assert row.time_s_low < row.time_s < row.time_s_high
    assert row.busbw_GB_per_s_low == pytest.approx(65536 / row.time_s_high / 1e9)
    assert row.busbw_GB_per_s_low < row.busbw_GB_per_s < row.busbw_GB_per_s_high


@pytest.mark.parametrize(("blocks", "p99_s"), [(99, None), (100, 0.0099), (1000, 0.099)])
def test_a_99th_percentile_needs_100_values(blocks: int, p99_s: float | None):
    rows = [(block, 0, 0.001 * (1 + block)) for block in range(blocks)]
    found = table_of(a_result(), rows=rows).iloc[0].time_p99_s
    assert pd.isna(found) if p99_s is None else found == pytest.approx(p99_s)


def test_what_a_backend_can_not_do_is_absent_with_its_reason():
    row = table_of(a_result()).iloc[1]
    assert (row.operation, row.status, row.reason) == ("scatter", "unavailable", "gloo can't: no scatter here")
    assert row[["time_s", "algbw_GB_per_s", "busbw_GB_per_s", "blocks"]].isna().all()


def test_a_run_that_is_not_there_is_missing_in_every_row():
    table = make_table([(a_run(), None, None)])
    assert list(table.size_bytes) == [4096, 65536]
    assert set(table.status) == {"missing"}


def test_a_result_of_another_configuration_is_refused():
    with pytest.raises(UserError, match="of another configuration"):
        make_table([(a_run(blocks=11), a_result(), None)])


def test_results_of_different_machines_are_refused_unless_that_is_wanted():
    other = a_run(launcher="torchrun")
    results = [a_result(), a_result(run=other, environment={**MACHINE, "cpu_model": "Another CPU"}, nodes=[])]
    with pytest.raises(UserError, match="cpu_model is 'Some CPU' in quick/collectives/spawn/1x2"):
        table_of(*results)
    assert len(table_of(*results, mixed_nodes=True)) == 4


def test_more_threads_than_cpus_are_warned_of():
    assert "oversubscribed: 2 ranks x 1 threads" in table_of(a_result(oversubscribed=True)).iloc[0].warnings


# Figures


@pytest.mark.parametrize("name", ["bus_bandwidth", "collective_time"])
def test_figures_have_a_panel_for_each_operation_and_name_what_is_absent(name: str):
    figure = make_figure(name, {"collectives": table_of(a_result())}, FigureConfig())
    assert [axes.get_title() for axes in figure.axes] == ["all-reduce"]
    foot = " ".join(figure._supxlabel.get_text().split())
    assert "Unavailable: scatter/float32/spawn/1x2 (gloo can't: no scatter here)" in foot
    assert "median of 10 blocks" in foot


def test_the_copy_bandwidth_is_the_limit_line():
    (axes,) = make_figure("bus_bandwidth", {"collectives": table_of(a_result())}, FigureConfig()).axes
    dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [set(line.get_ydata()) for line in dotted] == [{6.0}]


@pytest.mark.parametrize("name", ["bus_bandwidth", "collective_time"])
def test_figures_of_an_experiment_without_collectives_say_so(name: str):
    figure = make_figure(name, {"collectives": make_table([])}, FigureConfig())
    assert [text.get_text() for axes in figure.axes for text in axes.texts] == ["n/a"]
    assert "times no collectives" in figure._supxlabel.get_text()


def test_sizes_and_times_are_named_with_their_units():
    assert [size_name(size) for size in (512, 4096, 2**26, 2**30)] == ["512 B", "4 KiB", "64 MiB", "1 GiB"]
    assert [time_name(time_s) for time_s in (1e-5, 0.001, 0.02, 3.0)] == ["10 µs", "1 ms", "20 ms", "3 s"]


def many_sizes(operations: int, sizes: list[int]) -> pd.DataFrame:
    """A table of the all-reduce under several names, by two launchers on two topologies."""
    row = table_of(a_result()).query("status == 'ok'").iloc[0]
    lines = [(launcher, ranks) for launcher in ("spawn", "torchrun") for ranks in (2, 4)]
    return pd.DataFrame(
        [
            {**row, "operation": f"all_{index}", "size_bytes": size, "launcher": launcher, "devices_per_node": ranks}
            for index in range(operations)
            for launcher, ranks in lines
            for size in sizes
        ]
    )


def drawn(name: str, table: pd.DataFrame, look: FigureConfig) -> Figure:
    with rc_context(style(name, look)):
        figure = make_figure(name, {"collectives": table}, look)
        FigureCanvasAgg(figure).draw()
    return figure


@pytest.mark.parametrize("width", ["screen", *FigureConfig().printed])
@pytest.mark.parametrize(
    ("operations", "sizes"),
    [(3, [4096]), (5, [4**n for n in range(6, 14)]), (1, [3 * 2**n for n in range(10, 30)])],
)
def test_sizes_stand_where_they_were_measured_and_not_on_each_other(operations: int, sizes: list[int], width: str):
    look = FigureConfig() if width == "screen" else FigureConfig().printed[width]
    figure = drawn("bus_bandwidth", many_sizes(operations, sizes), look)
    named = 0
    for axes in figure.axes[:operations]:
        ticks = axes.xaxis.get_major_ticks()
        assert {tick.get_loc() for tick in ticks} <= set(sizes)
        assert len(ticks) >= min(3, len(sizes))
        assert axes.get_xlim()[0] < min(sizes) <= max(sizes) < axes.get_xlim()[1]
        boxes = [tick.label1.get_window_extent() for tick in ticks if tick.label1.get_visible()]
        assert not any(one.overlaps(other) for one, other in pairwise(boxes))
        named += bool(boxes)
    assert named == min(operations, 2 if width == "one_column" else 3)  # the lowest of each column


@pytest.mark.parametrize("name", ["bus_bandwidth", "collective_time"])
def test_the_lowest_panel_of_each_column_names_its_axis(name: str):
    figure = make_figure(name, {"collectives": many_sizes(5, [4096, 16384])}, FigureConfig())
    assert [axes.get_xlabel() for axes in figure.axes[:5]] == ["", "", *["size of the array"] * 3]


@pytest.mark.parametrize("name", ["bus_bandwidth", "collective_time"])
def test_no_line_is_dotted_as_its_limit_is(name: str):
    table = many_sizes(1, [4096, 16384])
    (axes,) = drawn(name, table, FigureConfig()).axes
    assert len(axes.containers) == 4
    looks = [line.lines[0].get_linestyle() for line in axes.containers]
    assert ":" not in looks
