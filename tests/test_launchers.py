"""Launchers build argv and run nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import a_trial

import horovodrun
import mpirun
from dpscale.cluster import ClusterConfig
from dpscale.errors import UserError
from dpscale.launching import slurm
from dpscale.launching.attempt import LOWEST_PORT, ephemeral_ports_begin
from dpscale.launching.launchers import LAUNCHERS, Placement
from dpscale.launching.placement import ByHand, place
from dpscale.launching.tasks import place_of_task

TRAIN = ["train.py", "--steps=3"]


def a_placement(**changes: Any) -> Placement:
    values: dict[str, Any] = {
        "nodes": 2,
        "node_rank": None,
        "ranks_per_node": 4,
        "master_addr": "10.1.2.3",
        "master_port": 12345,
        "run_id": "job-1",
        "cores_per_rank": 3,
    }
    return Placement(**values | changes)


@pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
def test_in_a_job_srun_starts_one_launcher_per_node(launcher: str) -> None:
    argv = LAUNCHERS[launcher].argv(TRAIN, a_placement(gres_per_node="gpu:4"))
    assert argv[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=12", "--gres=gpu:4"} <= set(argv)
    assert "--nproc-per-node=4" in argv
    assert not any(argument.startswith("--node-rank") for argument in argv)  # each node reads its own


@pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
def test_on_ones_own_node_nothing_stands_before_the_launcher(launcher: str) -> None:
    argv = LAUNCHERS[launcher].argv(TRAIN, a_placement(node_rank=1))
    assert argv[0] == sys.executable
    assert "--node-rank=1" in argv


def test_the_launcher_srun_starts_one_task_per_rank() -> None:
    argv = LAUNCHERS["srun"].argv(TRAIN, a_placement())
    assert {"--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=3"} <= set(argv)


def after(flag: str, argv: list[str]) -> str:
    return argv[argv.index(flag) + 1]


def test_mpirun_on_ones_own_machine_asks_no_scheduler_and_no_ssh_and_stays_on_loopback() -> None:
    argv = LAUNCHERS["mpirun"].argv(TRAIN, a_placement(nodes=1, node_rank=0))
    assert argv[0] == "mpirun"
    assert after("-np", argv) == "4"
    assert (after("plm", argv), after("ras", argv)) == ("isolated", "^slurm")
    assert after("oob_tcp_if_include", argv) == after("btl_tcp_if_include", argv) == "127.0.0.0/8"


def test_mpirun_in_a_job_is_one_for_all_nodes_rank_0_on_the_first() -> None:
    argv = LAUNCHERS["mpirun"].argv(TRAIN, a_placement(hosts=("gpu07", "gpu08"), gres_per_node="gpu:4"))
    assert after("-np", argv) == "8"
    assert argv[:4] == ["env", "SLURM_NODELIST=gpu07,gpu08", "SLURM_TASKS_PER_NODE=4(x2)", "mpirun"]
    assert after("--map-by", argv) == "slot"
    assert (after("plm", argv), after("ras", argv)) == ("slurm", "slurm")
    assert after("plm_slurm_args", argv) == "--overlap --gres=gpu:4"
    assert "srun" not in argv


def test_horovodrun_starts_all_ranks_on_this_machine() -> None:
    argv = LAUNCHERS["horovodrun"].argv(TRAIN, a_placement(nodes=1, node_rank=0))
    assert argv[:6] == ["horovodrun", "--gloo", "-np", "4", "-H", "localhost:4"]


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_by_hand_each_machine_needs_a_launcher_of_its_own(launcher: str) -> None:
    with pytest.raises(UserError, match=f"{launcher} starts the ranks of all machines.*use spawn or torchrun"):
        place(a_trial(nodes=2, launcher=launcher), ByHand(0, "127.0.0.1", 12345), None, 1)


def test_horovodrun_on_several_nodes_is_refused() -> None:
    with pytest.raises(UserError, match="horovodrun starts ranks on one node only, 2 are asked for"):
        place(a_trial(nodes=2, launcher="horovodrun"), None, {"job_id": "7", "nodes": ["a", "b"]}, 1)


MPI_TASK = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}
HOROVOD_TASK = {name.replace("OMPI_COMM_WORLD", "HOROVOD"): value for name, value in MPI_TASK.items()}


@pytest.mark.parametrize(
    ("names", "variables"),
    [(mpirun.NAMES, MPI_TASK), (horovodrun.NAMES, {**HOROVOD_TASK, "HOROVOD_CROSS_RANK": "1"})],
    ids=["mpirun", "horovodrun"],
)
def test_a_task_becomes_the_rank_that_its_launcher_says(names: dict[str, str], variables: dict[str, str]) -> None:
    place = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}
    assert place_of_task("it", names, variables) == place


def test_a_task_of_another_mpi_is_refused_by_what_it_lacks() -> None:
    with pytest.raises(UserError, match=r"OMPI_COMM_WORLD_RANK.* not set: only Open MPI's mpirun starts this"):
        place_of_task("Open MPI's mpirun", mpirun.NAMES, {"PMI_RANK": "0", "PMI_SIZE": "2"})


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_training_command_comes_last_and_whole(launcher: str) -> None:
    assert LAUNCHERS[launcher].argv(TRAIN, a_placement())[-len(TRAIN) :] == TRAIN


@pytest.mark.parametrize(
    ("launcher", "outside"),
    [("spawn", "srun"), ("torchrun", "srun"), ("srun", "srun"), ("mpirun", "mpirun"), ("horovodrun", "horovodrun")],
)
def test_a_container_holds_what_runs_on_a_node_and_what_starts_it_stays_outside(launcher: str, outside: str) -> None:
    argv = LAUNCHERS[launcher].argv(TRAIN, a_placement(container="image.sif", binds=("/data", "/drafts")))
    inside = argv.index("image.sif")
    assert argv.index(outside) < argv.index("apptainer") < inside
    assert {"--bind=/data", "--bind=/drafts"} <= set(argv[:inside])
    assert argv[inside + 1] == "python"
    assert sys.executable not in argv


def test_ports_of_jobs_lie_below_the_ephemeral_range_and_neighbours_share_none() -> None:
    ports = {job: [slurm.port_of(job, attempt) for attempt in (1, 2, 3)] for job in range(100_000)}
    assert all(LOWEST_PORT <= port < ephemeral_ports_begin() for found in ports.values() for port in found)
    assert all(set(ports[job]).isdisjoint(ports[job + 1]) for job in range(99_999))


def test_nodes_are_asked_for_with_one_task_each_and_gpus_per_node() -> None:
    asked = slurm.resources(a_trial(nodes=4, devices_per_node=8, device="cuda"), ClusterConfig(gres="gpu:a100"))
    assert (asked["nodes"], asked["tasks"], asked["mpi"]) == (4, 4, "srun")
    assert asked["gres"] == "gpu:a100:8"
    assert asked["slurm_extra"].startswith("--ntasks-per-node=1 --exclusive --signal=USR1@60 ")


def test_a_job_on_one_node_is_left_to_the_plugins_own_step() -> None:
    asked = slurm.resources(a_trial(), ClusterConfig())
    assert (asked["nodes"], asked["tasks"], asked["mpi"], asked["gres"]) == (1, None, None, None)


def test_a_job_has_more_time_than_its_trial_and_a_retry_still_more() -> None:
    asked = slurm.resources(a_trial(timeout_s=600.0), ClusterConfig())
    assert asked["runtime"] == 10 + slurm.START_UP_MINUTES
    assert "runtime" in slurm.GROW_WITH_ATTEMPTS  # tests/slurm sees it grow


def test_cpus_follow_threads_and_loader_workers_or_the_sites_own_number() -> None:
    trial = a_trial(threads_per_rank=3, loader_workers=2)
    assert slurm.resources(trial, ClusterConfig())["cpus_per_task"] == 2 * 5
    assert slurm.resources(trial, ClusterConfig(cores_per_rank=8))["cpus_per_task"] == 2 * 8


def test_several_nodes_without_a_job_are_refused_with_both_ways_out() -> None:
    with pytest.raises(UserError, match=r"snakemake --profile slurm.*--node-rank"):
        place(a_trial(nodes=2), None, None, 1)


def test_a_job_with_another_number_of_nodes_is_refused() -> None:
    with pytest.raises(UserError, match="the trial needs 2"):
        place(a_trial(nodes=2), None, {"job_id": "7", "nodes": ["a", "b", "c"]}, 1)


def test_machines_by_hand_agree_on_the_rendezvous_without_talking() -> None:
    trial = a_trial(nodes=2)
    first, second = (place(trial, ByHand(rank, "127.0.0.1", 12345), None, 1) for rank in (0, 1))
    assert (first.run_id, first.master_addr, first.master_port) == (
        second.run_id,
        second.master_addr,
        second.master_port,
    )
    assert (first.node_rank, second.node_rank) == (0, 1)


def test_a_node_rank_beyond_the_nodes_is_refused() -> None:
    with pytest.raises(UserError, match="0 to 1"):
        place(a_trial(nodes=2), ByHand(2, "127.0.0.1", 12345), None, 1)


def test_a_host_that_does_not_resolve_is_named() -> None:
    with pytest.raises(UserError, match=r"no-such-host\.invalid"):
        slurm.address_of("no-such-host.invalid")


def test_several_tasks_per_node_are_refused_where_one_launcher_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="one launcher per node"):
        slurm.node_rank_of_this_step()


def test_the_first_node_is_taken_from_the_node_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not from SLURM_LAUNCH_NODE_IPADDR, which is the host that the job was submitted from."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        "#!/bin/sh\ncase \"$*\" in *hostnames*) printf 'gpu07\\ngpu08\\n';; "
        "*) echo 'JobId=5 NodeList=gpu[07-08] NumCPUs=64 Partition=big OverSubscribe=OK';; esac\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "5")
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "10.9.9.9")
    job = slurm.describe_job()
    assert job is not None
    assert job["nodes"] == ["gpu07", "gpu08"]
    assert job["shared"] is True
