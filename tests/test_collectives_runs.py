"""Runs of collectives: how they are planned, launched and run by Snakemake, and over an emulated network."""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import a_config, changed
from launching import SCRIPTS, launch_environment
from pipeline import Checkout, small_config, small_experiment
from timed_runs import a_run

import launch_collectives
from dpscale.collectives.operations import OPERATIONS
from dpscale.collectives.run import FILE, TIMES, Result, Run, read_times
from dpscale.config import load_config
from dpscale.errors import ConfigError
from dpscale.planning.collectives import plan_collectives
from dpscale.tables.collectives import make_table

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


def test_the_command_of_a_result_times_the_same_again_from_anywhere(tmp_path: Path):
    folder, run = tmp_path / "it's here", a_run(operations=["broadcast"])
    folder.mkdir()
    assert launched(run, folder).returncode == 0
    first = Result.read(folder / FILE)
    command = first.launch["rerun"]
    environment = launch_environment(tmp_path)
    subprocess.run(command, shell=True, cwd=tmp_path, env=environment, timeout=120, check=True, capture_output=True)
    again = Result.read(folder / "again" / FILE)
    assert again.run == first.run
    assert again.environment["code_digest"] == first.environment["code_digest"]
    assert Result.read(folder / FILE) == first  # which stays as it was


def test_the_command_of_a_run_over_an_emulated_network_finds_its_file_from_anywhere(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = argparse.Namespace(folder=Path("there"), node_rank=None, master_addr=None, master_port=None)
    command = launch_collectives.again(a_run(network="slow.yaml"), args)
    assert f"--network={tmp_path / 'slow.yaml'}" in shlex.split(command)


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
