"""Collectives: their bandwidths, that every result's values are checked, how they are timed, and what a run leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from factories import LAUNCH, MACHINE, a_config, changed
from launching import SCRIPTS, SERVER, launch_environment
from pipeline import Checkout, small_config, small_experiment

from dpscale.collectives import timing
from dpscale.collectives.exchanges import Exchange, WrongValues, exchange_of
from dpscale.collectives.operations import ITEM_BYTES, OPERATIONS, algbw_GB_per_s, busbw_GB_per_s, count_of
from dpscale.collectives.planning import plan_collectives
from dpscale.collectives.run import FILE, TIMES, Point, Result, Run, read_times, write_times
from dpscale.config import FigureConfig, load_config
from dpscale.errors import ConfigError, UserError
from dpscale.figures import make_figure
from dpscale.figures.collectives import size_name, time_name
from dpscale.tables.collectives import make_table
from dpscale.world import World

DTYPES = list(ITEM_BYTES)
ROOT_ONLY = {"reduce", "gather"}


def a_run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "experiment": "quick",
        "launcher": "spawn",
        "nodes": 1,
        "devices_per_node": 2,
        "world_size": 2,
        "device": "cpu",
        "backend": "gloo",
        "threads_per_rank": 1,
        "operations": ["all_reduce"],
        "dtypes": ["float32"],
        "sizes": [4096, 65536],
        "blocks": 10,
        "seconds_per_size": 0.05,
        "timeout_s": 120.0,
        "collective_timeout_s": 60.0,
    }
    return Run(**values | changes)


def world_of(rank: int, size: int) -> World:
    return World(rank, rank, 0, size, size, torch.device("cpu"))


# Bandwidths


@pytest.mark.parametrize(
    ("operation", "factor"),  # nccl-tests, doc/PERFORMANCE.md and GetBw of its sources, for 4 ranks
    [
        ("all_reduce", 1.5),
        ("reduce_scatter", 0.75),
        ("all_gather", 0.75),
        ("all_to_all", 0.75),
        ("scatter", 0.75),
        ("gather", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
    ],
)
def test_bus_bandwidth_is_nccl_tests_own(operation: str, factor: float):
    assert busbw_GB_per_s(operation, 3_000_000_000, 2.0, 4) == pytest.approx(1.5 * factor)


def test_algorithm_bandwidth_is_size_over_time_in_decimal_gigabytes():
    assert algbw_GB_per_s(64 * 2**20, 0.01) == pytest.approx(6.7108864)


def test_a_size_is_cut_to_equal_parts_where_an_operation_splits_it():
    assert count_of("all_reduce", 4096, "float32", 3) == 1024
    assert count_of("all_gather", 4096, "float32", 3) == 1023
    assert count_of("scatter", 8, "float32", 4) == 0


# Values


def check_all(rank: int, size: int, folder: Path) -> None:
    """Every operation and dtype, once and three times on end, on an odd number of elements; leaves what was checked."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=size)
    found = {}
    for operation in OPERATIONS:
        for dtype in DTYPES:
            exchange = exchange_of(operation, 1003 * ITEM_BYTES[dtype], dtype, world_of(rank, size))
            for calls in (1, 3):
                if calls > exchange.most_calls or (calls > 1 and not exchange.repeatable):
                    continue
                exchange.fill()
                for _ in range(calls):
                    exchange.call()
                found[f"{operation}/{dtype}/{calls}"] = exchange.check(calls)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("size", [2, 4])
def test_every_operation_gives_the_right_values_in_every_dtype(size: int, tmp_path: Path):
    ranks = [SERVER.Process(target=check_all, args=(rank, size, tmp_path)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    assert [process.exitcode for process in ranks] == [0] * size
    for rank in range(size):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        for operation in OPERATIONS:
            for dtype in DTYPES:
                receives = rank == 0 or operation not in ROOT_ONLY
                assert found[f"{operation}/{dtype}/1"] == int(receives), (operation, dtype)
        assert found["all_reduce/float32/3"] == 3  # each takes up the last one's result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_wrong_result_is_found(operation: str, dtype: str):
    for rank in range(4):
        exchange = exchange_of(operation, 1003 * ITEM_BYTES[dtype], dtype, world_of(rank, 4))
        exchange.fill()
        if exchange.result is None:
            continue
        if operation != "broadcast" or rank != 0:
            with pytest.raises(WrongValues, match=f"rank {rank}, {operation} of"):
                exchange.check(1)  # nothing was exchanged
        exchange.result.copy_(exchange.expected)
        assert exchange.check(1) == 1
        for damaged in (0, len(exchange.result) - 1):
            right = exchange.result[damaged].clone()
            exchange.result[damaged] += 1
            with pytest.raises(WrongValues, match=f"element {damaged} of"):
                exchange.check(1)
            exchange.result[damaged] = right
        exchange.result.copy_(exchange.expected.roll(1))  # at the wrong place
        with pytest.raises(WrongValues):
            exchange.check(1)


@pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "gather"])
def test_parts_in_the_wrong_order_are_found(operation: str):
    exchange = exchange_of(operation, 4096, "float32", world_of(0, 4))
    parts = exchange.expected.chunk(4)
    exchange.result.copy_(torch.cat([parts[1], parts[0], *parts[2:]]))
    with pytest.raises(WrongValues):
        exchange.check(1)


@pytest.mark.parametrize("missing", [0, 3])
def test_a_sum_that_lacks_a_rank_is_found(missing: int):
    whole = exchange_of("all_reduce", 4096, "bfloat16", world_of(0, 4))
    other = exchange_of("all_reduce", 4096, "bfloat16", world_of(missing, 4))
    other.fill()
    whole.result.copy_(whole.expected - other.result)
    with pytest.raises(WrongValues):
        whole.check(1)


def test_not_a_number_is_wrong():
    exchange = exchange_of("broadcast", 4096, "float32", world_of(1, 2))
    exchange.result.copy_(exchange.expected)
    exchange.result[5] = float("nan")
    with pytest.raises(WrongValues, match="element 5"):
        exchange.check(1)


@pytest.mark.parametrize("ranks", [2, 3, 64])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8"])
def test_all_reduces_on_end_never_overflow(dtype: str, ranks: int):
    exchange = exchange_of("all_reduce", 4096, dtype, world_of(0, ranks))
    largest = exchange.expected.double().max().item() * float(ranks) ** (exchange.most_calls - 1)
    limit = torch.finfo if exchange.expected.is_floating_point() else torch.iinfo
    assert exchange.most_calls >= 1
    assert largest <= limit(exchange.expected.dtype).max


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_reduces_on_end_are_right_up_to_rounding_and_one_wrong_element_is_found(dtype: str):
    exchange = exchange_of("all_reduce", 4096, dtype, world_of(0, 3))
    exchange.result.copy_(exchange.expected)
    for _ in range(exchange.most_calls - 1):
        exchange.result.mul_(3)  # what three equal ranks give
    assert exchange.check(exchange.most_calls) == exchange.most_calls
    exchange.result[17] = 0
    with pytest.raises(WrongValues, match="element 17 of"):
        exchange.check(exchange.most_calls)


# Times


class Calls:
    """Calls, on a clock on which each takes `call_s`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call_s: float) -> None:
        self.now_s = 0.0
        monkeypatch.setattr("dpscale.measure.time.perf_counter", lambda: self.now_s)
        self.call_s = call_s

    def call(self) -> None:
        self.now_s += self.call_s

    def exchange(self, **changes: Any) -> Exchange:
        result = torch.zeros(1)
        return Exchange(name="x", call=self.call, fill=lambda: None, result=result, expected=result, **changes)


def test_short_calls_are_timed_in_blocks(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 20e-6).exchange(), world_of(0, 1), blocks=30, seconds=1)
    assert timed.calls == pytest.approx(timing.BLOCK_S / 20e-6, abs=1)
    assert timed.times_s == pytest.approx([timed.calls * 20e-6] * 30)


def test_long_calls_are_timed_one_by_one_and_fewer(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 0.05).exchange(), world_of(0, 1), blocks=100, seconds=1)
    assert (timed.calls, len(timed.times_s)) == (1, 20)


def test_at_least_ten_blocks_are_timed_however_long_they_take(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 3.0).exchange(), world_of(0, 1), blocks=100, seconds=1)
    assert len(timed.times_s) == 10


def test_every_block_is_checked_and_warmed_up_apart(monkeypatch: pytest.MonkeyPatch):
    timed = timing.time_exchange(Calls(monkeypatch, 0.05).exchange(), world_of(0, 1), blocks=10, seconds=1)
    assert timed.checked == 10 + timing.WARMUP_BLOCKS


def test_what_can_not_be_repeated_is_checked_on_a_call_of_its_own_off_the_clock(monkeypatch: pytest.MonkeyPatch):
    calls = Calls(monkeypatch, 0.001)
    timed = timing.time_exchange(calls.exchange(repeatable=False), world_of(0, 1), blocks=10, seconds=1)
    assert timed.times_s == pytest.approx([timed.calls * 0.001] * 10)
    assert timed.checked == 10 + timing.WARMUP_BLOCKS


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


# The plan


def planned(**collectives: Any) -> list[Run]:
    return plan_collectives(load_config(a_config(collectives={"operations": "all", **collectives})))["quick"]


def test_an_experiment_times_no_collectives_unless_it_says_which():
    assert plan_collectives(load_config(a_config()))["quick"] == []


def test_runs_take_launchers_and_topologies_of_the_experiment_that_have_two_devices_or_more():
    assert [run.id for run in planned()] == ["quick/collectives/spawn/1x2", "quick/collectives/torchrun/1x2"]


def test_runs_take_launchers_and_topologies_of_their_own():
    runs = planned(launchers=["srun", "horovodrun"], topologies=["1x4", "2x2"])
    assert [f"{run.launcher}/{run.topology}" for run in runs] == ["srun/1x4", "srun/2x2", "horovodrun/1x4"]


def test_sizes_go_up_by_a_factor():
    assert planned(sizes="512B..64KiB", factor=8)[0].sizes == [512, 4096, 32768]


def test_all_is_every_operation():
    assert planned()[0].operations == list(OPERATIONS)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("operations", ["all_reduced"], "did you mean 'all_reduce'?"),
        ("operations", "some", "write all, or a list"),
        ("sizes", "4KB..1MiB", "'4KB' is no size; write such as 512B, 4KiB"),
        ("sizes", "4MiB..1KiB", "write the smallest first"),
        ("sizes", "4MiB", "write the smallest and the largest"),
        ("dtypes", ["float31"], "did you mean 'float32'?"),
        ("factor", 1, "greater than or equal to 2"),
        ("launchers", ["spawm"], "did you mean 'spawn'?"),
        ("topologies", ["1x1"], "nobody to exchange anything with"),
        ("topologies", ["2"], "no topology"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(key: str, value: Any, message: str):
    config = changed(a_config(collectives={"operations": "all"}), ["experiments", "quick", "collectives", key], value)
    with pytest.raises(ConfigError, match=r"experiments\.quick\.collectives") as refusal:
        plan_collectives(load_config(config))
    assert message in str(refusal.value)


def test_collectives_of_one_device_alone_are_refused():
    config = a_config(topologies=["1x1"], collectives={"operations": "all"})
    with pytest.raises(ConfigError, match=r"give collectives.topologies, such as \[1x2\]"):
        plan_collectives(load_config(config))


# Launches


def launched(run: Run, folder: Path, inject: str = "", rank: int | str = "all") -> subprocess.CompletedProcess[str]:
    script = str(SCRIPTS / "launch_collectives.py")
    command = [sys.executable, script, f"--folder={folder}", f"--log={folder / 'run.log'}", *run.to_args()]
    environment = launch_environment(folder, inject, rank)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_a_run_leaves_its_result_and_names_what_the_backend_lacks(tmp_path: Path):
    run = a_run(operations=["scatter", "send_recv"], dtypes=["float32", "bfloat16"])
    done = launched(run, tmp_path, inject="backend_without_scatter")
    assert done.returncode == 0, done.stderr + (tmp_path / "run.log").read_text()
    result = Result.read(tmp_path / FILE)
    assert result.run == run
    assert len(result.copy_GB_per_s) == 2
    assert {"torch", "code_digest", "commit", "cpu_model"} <= result.environment.keys()
    points = [(point.operation, point.dtype, point.size_bytes, point.blocks > 0) for point in result.points]
    assert points == [
        (operation, dtype, size, operation == "send_recv")
        for operation in ("scatter", "send_recv")
        for dtype in ("float32", "bfloat16")
        for size in (4096, 65536)
    ]
    assert result.points[0].reason == "gloo can't: ProcessGroupSmall does not support scatter"
    assert all(point.checked >= 2 * point.blocks for point in result.points if point.operation == "send_recv")


def test_a_run_whose_values_are_wrong_fails_and_leaves_nothing(tmp_path: Path):
    run = a_run(launcher="torchrun")
    done = launched(run, tmp_path, inject="sums_wrongly", rank=1)
    assert done.returncode == 1
    # the sum is wrong for both: whoever looks first says so
    assert re.search(r"rank \d, all_reduce of 1024 x float32: element 17 of 1024", done.stderr)
    assert not (tmp_path / FILE).exists()
    assert not (tmp_path / TIMES).exists()
    assert launched(run, tmp_path).returncode == 0
    assert "element 17 of 1024" in (tmp_path / "run.attempt-1.log").read_text()  # each attempt keeps its log
    attempts = Result.read(tmp_path / FILE).launch["attempts"]
    assert ["element 17" in attempt["how"] for attempt in attempts] == [True, False]


# The pipeline


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    collectives = {
        "operations": ["all_reduce", "broadcast"],
        "sizes": "1KiB..16KiB",
        "blocks": 10,
        "seconds_per_size": 0.05,
    }
    config = small_config(small_experiment(collectives=collectives))
    return Checkout.fresh(tmp_path_factory.mktemp("collectives") / "checkout", config)


def test_the_target_collectives_times_them_and_trains_nothing(checkout: Checkout):
    done = checkout.run("collectives")
    assert done.jobs["time_collectives"] == 1
    assert "trial" not in done.jobs
    table = checkout.table("collectives")
    assert list(table.status) == ["ok"] * 4 + ["ok"] * 2
    assert set(table.size_bytes) == {1024, 4096, 16384}
    assert checkout.results("small/figures/bus_bandwidth.svg").exists()
    assert checkout.dry_run("collectives").jobs == {}


def test_collectives_are_timed_again_when_their_settings_or_their_code_change(checkout: Checkout):
    other = checkout.copy(checkout.root.parent / "other")
    other.edit("config.yaml", "blocks: 10", "blocks: 11")
    assert other.dry_run("collectives").jobs["time_collectives"] == 1
    other.edit("config.yaml", "blocks: 11", "blocks: 10")
    assert other.dry_run("collectives").jobs == {}
    other.edit_code("dpscale/collectives/timing.py")
    assert other.dry_run("collectives").jobs["time_collectives"] == 1


def test_without_collectives_the_table_is_empty_and_nothing_is_timed(checkout: Checkout):
    none = Checkout.fresh(checkout.root.parent / "none", small_config())
    assert "time_collectives" not in none.dry_run().jobs
    none.run("results/small/tables/collectives.csv")
    assert none.table("collectives").empty


def test_raising_a_time_limit_times_nothing_again():
    assert replace(a_run(), timeout_s=1.0) == a_run()
    assert not [argument for argument in a_run().deciding_args() if "timeout" in argument]


# Over an emulated network


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"operations": "all"}, r"broadcast, .* can't be emulated; set operations: \[all_reduce\]"),
        ({"operations": ["all_reduce"], "network": ""}, "network = ''"),
    ],
)
def test_an_emulated_network_has_times_of_all_reduces_alone(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        planned(**{"network": "slow.yaml"} | changes)


def test_links_between_gpus_are_not_emulated():
    collectives = {"operations": ["all_reduce"], "network": "slow.yaml"}
    with pytest.raises(ConfigError, match="use device: cpu"):
        plan_collectives(load_config(a_config(device="cuda", collectives=collectives)))


def test_all_reduces_over_an_emulated_network_take_its_time_and_are_checked_as_ever(tmp_path: Path):
    network = tmp_path / "slow.yaml"
    network.write_text(
        "{intra_latency_s: 0.01, inter_latency_s: 0, intra_bandwidth_GB_per_s: 0.001, inter_bandwidth_GB_per_s: 1}"
    )
    run = a_run(network=str(network), dtypes=["float32", "int64"])
    done = launched(run, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    result = Result.read(tmp_path / "run" / FILE)
    assert all(point.checked >= 2 * point.blocks for point in result.points)
    times = read_times(tmp_path / "run" / FILE)
    assert times.groupby(["dtype", "size_bytes"]).ngroups == 4
    for (_, size_bytes), rows in times.groupby(["dtype", "size_bytes"]):
        expected_s = 2 * 0.01 + size_bytes / 1e6  # two steps; of two ranks each sends as much as there is
        assert (rows.time_s / rows.calls).min() >= expected_s
        assert (rows.time_s / rows.calls).min() <= expected_s * 1.15 + 0.005
    assert set(make_table([(run, result, times)]).warnings) == {f"emulated network: {network}"}
