"""`snakemake --profile slurm` runs an experiment over devices and nodes, to its figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pipeline import Checkout, small_config, small_experiment

from dpscale.collectives.run import Result
from dpscale.launching.attempt import free_port
from dpscale.record import RECORD, Record, read_samples
from slurm.cluster import NODES, Cluster
from slurm.conftest import ClusterCheckout

EXPERIMENT = small_experiment(
    strategies={"single": None, "ddp": None, "independent": {"launchers": ["srun"], "topologies": ["1x2", "2x2"]}},
    launchers=["spawn", "torchrun"],
    topologies=["1x1", "1x2", "2x1", "2x2"],
)
CELLS = [
    f"ddp/{launcher}/{topology}" for launcher in ("spawn", "torchrun") for topology in ("1x1", "1x2", "2x1", "2x2")
] + ["single/spawn/1x1", "independent/srun/1x2", "independent/srun/2x2"]


@pytest.fixture(scope="module")
def done(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterCheckout]:
    copy = Checkout.fresh(tmp_path_factory.mktemp("experiment") / "checkout", small_config(EXPERIMENT))
    checkout = ClusterCheckout(copy, cluster)
    checkout.run()
    yield checkout
    copy.end()


def record_of(checkout: ClusterCheckout, cell: str) -> Record:
    return Record.read(checkout.copy.results(f"small/trials/{cell}/r0/record.json"))


def test_it_ends_with_all_figures_and_leaves_nothing(done: ClusterCheckout) -> None:
    figures = {path.stem for path in done.copy.results("small/figures").glob("*.svg")}
    assert {"comparison", "speedup", "efficiency", "epoch_time", "loss", "evaluation"} <= figures
    assert done.leftovers() == []


def test_there_is_exactly_one_record_per_trial(done: ClusterCheckout) -> None:
    records = [
        path.parent.relative_to(done.copy.results("small/trials")) for path in done.copy.results().rglob("record.json")
    ]
    assert sorted(str(path) for path in records) == sorted(f"{cell}/r0" for cell in CELLS)


@pytest.mark.parametrize("cell", CELLS)
def test_a_record_has_the_ranks_and_nodes_that_its_path_says(done: ClusterCheckout, cell: str) -> None:
    record = record_of(done, cell)
    nodes, devices_per_node = map(int, cell.rpartition("/")[2].split("x"))
    job = record.launch["slurm"]
    assert record.trial.world_size == nodes * devices_per_node == len(record.ranks)
    assert len(job["nodes"]) == len(record.nodes) == nodes
    assert set(job["nodes"]) <= set(NODES)
    # ranks 0, 1, ... fill the first node first, so rank 0 is on it
    assert [facts.node for facts in record.ranks] == [node for node in job["nodes"] for _ in range(devices_per_node)]
    assert [machine["node"] for machine in record.nodes] == job["nodes"]


@pytest.mark.parametrize("cell", CELLS)
def test_each_node_has_a_monitor_of_its_own_ranks(done: ClusterCheckout, cell: str) -> None:
    record = record_of(done, cell)
    ranks = read_samples(done.copy.results(f"small/trials/{cell}/r0/{RECORD}")).to_pandas().query("kind == 'rank'")
    seen = {(node, int(name)) for node, name in zip(ranks.node, ranks["name"], strict=True)}
    assert seen == {(facts.rank // record.trial.ranks_per_node, facts.rank) for facts in record.ranks}
    assert len(record.machines_cpu_time_s) == len(record.monitor_absent) == record.trial.nodes


def test_jobs_have_their_nodes_to_themselves_and_records_say_so(done: ClusterCheckout) -> None:
    assert all(record_of(done, cell).launch["slurm"]["shared"] is False for cell in CELLS)


def test_records_hold_no_environment_but_named_settings(done: ClusterCheckout) -> None:
    settings = [machine["settings"] for cell in CELLS for machine in record_of(done, cell).nodes]
    allowed = re.compile(r"(OMP|MKL|NCCL|GLOO|KMP|MALLOC|TORCH_NCCL)_\w+|CUDA_VISIBLE_DEVICES")
    assert settings
    assert all(allowed.fullmatch(name) for found in settings for name in found)


def test_ranks_on_two_nodes_train_as_ranks_on_one_do(done: ClusterCheckout) -> None:
    losses = done.copy.table("losses").query("strategy == 'ddp' and devices == 2")
    by_cell = [cell.loss.to_numpy() for _, cell in losses.groupby(["launcher", "nodes"])]
    assert len(by_cell) == 4
    assert all(abs(values - by_cell[0]).max() < 1e-4 for values in by_cell)


def test_a_second_run_has_nothing_to_do(done: ClusterCheckout) -> None:
    assert done.run("-n").jobs == {}


def test_one_result_target_measures_that_one_trial_again(done: ClusterCheckout) -> None:
    target = "results/small/trials/ddp/torchrun/2x1/r0/record.json"
    (done.copy.root / target).unlink()
    again = done.run(target)
    assert again.jobs == {"trial": 1}
    assert again.measured == {"ddp/torchrun/2x1/r0"}


@pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
def test_two_launchers_by_hand_are_two_machines(done: ClusterCheckout, tmp_path: Path, launcher: str) -> None:
    by_slurm = record_of(done, f"ddp/{launcher}/2x2")
    port = free_port()
    machines = [
        subprocess.Popen(
            [
                sys.executable,
                str(done.copy.root / "scripts" / "launch.py"),
                f"--data={done.copy.root / 'data' / 'synthetic'}",
                f"--folder={tmp_path}",
                f"--log={tmp_path / f'{rank}.log'}",
                f"--node-rank={rank}",
                "--master-addr=localhost",
                f"--master-port={port}",
                *by_slurm.trial.to_args(),
            ],
            env=done.copy.environment(GLOO_SOCKET_IFNAME="lo"),
        )
        for rank in (0, 1)
    ]
    assert [machine.wait(timeout=120) for machine in machines] == [0, 0], [
        path.read_text() for path in tmp_path.glob("*.log")
    ]
    by_hand = Record.read(tmp_path / "record.json")
    assert by_hand.trial == by_slurm.trial
    assert len(by_hand.ranks) == 4
    assert [segment.samples for segment in by_hand.segments] == [segment.samples for segment in by_slurm.segments]
    assert by_hand.segments[-1].evaluation is not None
    assert by_slurm.segments[-1].evaluation is not None
    assert by_hand.segments[-1].evaluation.loss == pytest.approx(by_slurm.segments[-1].evaluation.loss, rel=1e-4)
    assert list(tmp_path.rglob("record.json")) == [tmp_path / "record.json"]


def test_nodes_that_are_not_to_be_shared_are_and_the_record_says_so(
    checkout: Callable[..., ClusterCheckout],
) -> None:
    """And two trials at once on one node share neither port nor rendezvous."""
    small = checkout(
        strategies={"ddp": None}, topologies=["1x2"], launchers=["spawn", "torchrun"], cluster={"exclusive": False}
    )
    small.run("small")
    records = small.copy.records()
    assert [record["launch"]["slurm"]["shared"] for record in records] == [True, True]
    ports = {re.search(r"--master-port=(\d+)", small.trial_log(f"ddp/{name}/1x2/r0")) for name in ("spawn", "torchrun")}
    assert len({match[1] for match in ports if match}) == 2
    assert small.copy.table("summary").warnings.str.contains("shared nodes").all()
    assert json.dumps(records)  # nothing in it that JSON can't say


def test_a_dataset_is_staged_to_the_node_once(checkout: Callable[..., ClusterCheckout], tmp_path: Path) -> None:
    staging = tmp_path / "scratch"
    small = checkout(strategies={"ddp": None}, topologies=["2x2"], cluster={"staging_dir": str(staging)})
    small.run("tables")
    copies = [path for path in staging.iterdir() if not path.name.startswith(".")]
    assert len(copies) == 1
    assert (copies[0] / "manifest.json").exists()
    assert f"--stage-to={staging}" in small.trial_log("ddp/spawn/2x2/r0")


def test_the_prelude_runs_before_a_trial(checkout: Callable[..., ClusterCheckout], tmp_path: Path) -> None:
    small = checkout(
        strategies={"single": None}, topologies=["1x1"], cluster={"prelude": f"echo loaded >> {tmp_path / 'modules'}"}
    )
    small.run("results/small/trials/single/spawn/1x1/r0/record.json")
    assert "loaded" in (tmp_path / "modules").read_text()


@pytest.mark.parametrize("launcher", ["spawn", "srun"])
def test_collectives_are_timed_over_two_nodes(checkout: Callable[..., ClusterCheckout], launcher: str) -> None:
    small = checkout(
        strategies={"ddp": None},
        collectives={
            "operations": ["all_reduce", "all_to_all"],
            "sizes": "4KiB..16KiB",
            "blocks": 10,
            "seconds_per_size": 0.1,
            "launchers": [launcher],
            "topologies": ["2x2"],
        },
    )
    small.run("results/small/tables/collectives.csv")
    result = Result.read(small.copy.results(f"small/collectives/{launcher}/2x2/collectives.json"))
    assert [machine["node"] for machine in result.nodes] == result.launch["slurm"]["nodes"]
    assert len(result.nodes) == 2
    assert len(result.copy_GB_per_s) == 4
    assert all(point.checked > 0 for point in result.points)
    assert small.leftovers() == []
