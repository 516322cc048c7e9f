"""What is asked of SLURM: read from SLURM itself, and from a recording sbatch and srun for what does not fit here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import a_trial
from pipeline import Checkout, small_config, small_experiment

from slurm.conftest import ClusterCheckout

RECORDER = """#!/bin/sh
printf '%s\\n' "$0 $*" >> {record}
{answer}
"""


def a_recorder(folder: Path, name: str, answer: str) -> Path:
    """A program that writes down how it was called, and answers; returns the file that it writes to."""
    record = folder / f"{name}.calls"
    path = folder / name
    path.write_text(RECORDER.format(record=shlex.quote(str(record)), answer=answer))
    path.chmod(0o755)
    return record


def test_a_job_of_two_nodes_with_four_gpus_each(checkout: Callable[..., ClusterCheckout]) -> None:
    """And on nodes without a real GPU it ends with one clear error, not a hang."""
    small = checkout(strategies={"ddp": None}, device="cuda", topologies=["2x4"], launchers=["torchrun"])
    done = small.snakemake("--retries=0", timeout_s=180)
    assert done.returncode != 0
    log = small.trial_log("ddp/torchrun/2x4/r0")
    assert "no CUDA device is visible here" in log.splitlines()[-1]
    job_id = re.findall(r"submitted with SLURM jobid (\d+) \(log: \S*rule_trial", done.output)[-1]
    job = dict(re.findall(r"(\S+?)=(\S*)", small.cluster.run("scontrol", "show", "job", "--oneliner", job_id)))
    assert job["NumNodes"] == "2"
    assert job["NumTasks"] == "2"
    assert job["NtasksPerN:B:S:C"].startswith("1:")
    assert job["CPUs/Task"] == "4"
    assert job["TresPerNode"] == "gres:gpu:4"
    assert job["OverSubscribe"] == "NO"
    assert small.leftovers() == []


@pytest.mark.parametrize(("topology", "nodes", "gpus"), [("1x8", 1, 8), ("4x8", 4, 8)])
def test_what_sbatch_is_asked_for(tmp_path: Path, topology: str, nodes: int, gpus: int) -> None:
    """Needs no SLURM: sbatch writes down its arguments and refuses."""
    experiment = small_experiment(
        strategies={"ddp": None},
        device="cuda",
        topologies=[topology],
        workload={"dataset": "digits"},
        threads_per_rank=3,
        loader_workers=2,
    )
    results = "it's $(touch pwned) `touch pwned`"
    config = small_config(experiment, results_dir=results, cluster={"gres": "gpu:a100"})
    copy = Checkout.fresh(tmp_path / "checkout", config)
    copy.run("prepare")
    programs = tmp_path / "bin"
    programs.mkdir()
    record = a_recorder(programs, "sbatch", "echo 'sbatch: error: invalid partition' >&2; exit 1")
    a_recorder(programs, "sinfo", "echo 'main*'")
    for silent in ("squeue", "scancel", "sacct", "sacctmgr"):
        a_recorder(programs, silent, "exit 0")
    target = f"{results}/small/trials/ddp/spawn/{topology}/r0/record.json"
    done = copy.snakemake("--profile", "slurm", "--retries=0", target, PATH=f"{programs}:{os.environ['PATH']}")
    assert done.returncode != 0
    assert record.exists(), done.output
    asked = record.read_text()
    assert not list(tmp_path.rglob("pwned"))
    assert f"--nodes={nodes} " in asked
    assert f"--gres=gpu:a100:{gpus} " in asked
    assert "--ntasks-per-node=1 " in asked
    assert "--exclusive" in asked
    assert f"--cpus-per-task={gpus * 5}" in asked
    assert "--ntasks-per-gpu" not in asked
    if nodes > 1:
        assert f"--ntasks={nodes} " in asked


def test_what_srun_is_asked_for_inside_the_job(tmp_path: Path) -> None:
    """One launcher per node over four nodes with eight GPUs each, rank 0's address the first of the node list."""
    calls = a_recorder(tmp_path, "srun", "exit 1")
    fields = "JobId=4711 NodeList=gpu[07-10] NumCPUs=64 Partition=main OverSubscribe=NO TimeLimit=00:10:00"
    answer = f"case \"$*\" in *hostnames*) printf 'localhost\\ngpu08\\ngpu09\\ngpu10\\n';; *) echo '{fields}';; esac"
    a_recorder(tmp_path, "scontrol", answer)
    trial = a_trial(nodes=4, devices_per_node=8, device="cuda", backend="nccl", launcher="torchrun", threads_per_rank=2)
    launch = Path(__file__).parents[2] / "scripts" / "launch.py"
    subprocess.run(
        [sys.executable, launch, "--data=x", f"--folder={tmp_path}", f"--log={tmp_path / 'log'}", *trial.to_args()],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "4711",
            "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",  # of the submitting host: no rank runs there
        },
        check=False,
        capture_output=True,
    )
    asked = calls.read_text()
    for argument in ("--nodes=4", "--ntasks=4", "--ntasks-per-node=1", "--cpus-per-task=16", "--gres=gpu:8"):
        assert f" {argument} " in asked
    assert "--kill-on-bad-exit=1" in asked
    assert re.search(r"--master-addr=(127\.0\.0\.1|::1) ", asked)
    assert "--nnodes=4 --nproc-per-node=8" in asked
    assert "--node-rank" not in asked  # each node reads its own inside the step
    assert "10.0.0.1" not in asked


def test_a_login_node_needs_neither_gpu_nor_torch_for_a_dry_run(tmp_path: Path) -> None:
    config = small_config(
        small_experiment(
            strategies={"ddp": None}, device="cuda", topologies=["1x1", "4x8"], workload={"dataset": "digits"}
        )
    )
    copy = Checkout.fresh(tmp_path / "checkout", config)
    blocked = tmp_path / "blocked"
    (blocked / "torch").mkdir(parents=True)
    (blocked / "torch" / "__init__.py").write_text("raise ImportError('there is no torch here')\n")
    done = copy.snakemake("--profile", "slurm", "-n", PYTHONPATH=str(blocked))
    assert done.returncode == 0, done.output
    assert done.jobs["trial"] == 2
