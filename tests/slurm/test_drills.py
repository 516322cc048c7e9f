"""Whatever ends a trial: no process, no job and no half record is left, and a plain second command finishes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from pipeline import wait_until

from slurm.cluster import Cluster
from slurm.conftest import ClusterCheckout

TRIAL = "ddp/torchrun/2x1/r0"
TARGET = f"results/small/trials/{TRIAL}/record.json"
LONG: dict[str, Any] = {
    "strategies": {"ddp": None},
    "topologies": ["2x1"],
    "launchers": ["torchrun"],
    "epochs": None,
    "steps": 800,
    "warmup_steps": 5,
}
RUNNING_S, GONE_S = 180, 240  # the plugin ends its own waiting late


@pytest.fixture
def long(checkout: Callable[..., ClusterCheckout]) -> ClusterCheckout:
    """A trial on two nodes that trains for some ten seconds; its dataset is there."""
    made = checkout(**LONG)
    made.copy.run("prepare")
    return made


def wait_for_steps(checkout: ClusterCheckout, process: subprocess.Popen[str], trial: str = TRIAL) -> None:
    wait_until(
        lambda: "steps begin" in checkout.trial_log(trial) or process.poll() is not None, RUNNING_S, "the trial trains"
    )
    assert process.poll() is None, process.communicate()[0]


def wait_for_nothing_left(checkout: ClusterCheckout) -> None:
    wait_until(lambda: not checkout.leftovers(), GONE_S, f"nothing is left of {checkout.leftovers()}")
    assert not (checkout.copy.root / TARGET).exists()


def finishes(checkout: ClusterCheckout) -> None:
    checkout.run(TARGET)
    assert (checkout.copy.root / TARGET).exists()
    assert checkout.leftovers() == []


def test_a_rank_is_killed(long: ClusterCheckout) -> None:
    process = long.start("--retries=0", TARGET)
    wait_for_steps(long, process)
    long.ranks()[0].kill()
    output, _ = process.communicate(timeout=GONE_S)
    assert process.returncode != 0, output
    assert re.search(r"rank [01] was killed by SIGKILL", long.trial_log(TRIAL))
    wait_for_nothing_left(long)
    finishes(long)


def test_a_running_job_is_cancelled(long: ClusterCheckout) -> None:
    process = long.start("--retries=0", TARGET)
    wait_for_steps(long, process)
    long.cluster.run("scancel", *long.cluster.queue())
    output, _ = process.communicate(timeout=GONE_S)
    assert process.returncode != 0, output
    wait_for_nothing_left(long)
    finishes(long)


@pytest.mark.parametrize("to_group", [True, False], ids=["Ctrl-C", "INT to snakemake"])
def test_the_user_interrupts_at_the_login_node(long: ClusterCheckout, to_group: bool) -> None:
    process = long.start(TARGET)
    wait_for_steps(long, process)
    long.ranks()[0].suspend()  # so that the trial is still there when Snakemake has heard
    os.killpg(process.pid, signal.SIGINT) if to_group else process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=GONE_S)
    assert process.returncode != 0, output
    wait_for_nothing_left(long)
    finishes(long)


def test_the_time_limit_is_reached_and_the_retry_has_more(long: ClusterCheckout) -> None:
    """One minute for a first attempt that a stopped rank holds up, with no signal ahead; the second has two, and finishes."""
    without_signal = "trial:slurm_extra='--ntasks-per-node=1 --exclusive'"
    process = long.start(TARGET, "--retries=1", "--set-resources", "trial:runtime=attempt", without_signal)
    wait_for_steps(long, process)
    long.ranks()[0].suspend()
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output + long.logs()
    jobs = re.findall(r"submitted with SLURM jobid (\d+)", output)
    limits = [
        re.search(r"TimeLimit=(\S+)", long.cluster.run("scontrol", "show", "job", "--oneliner", job)) for job in jobs
    ]
    assert [limit[1] for limit in limits if limit] == ["00:01:00", "00:02:00"]
    assert (long.copy.root / TARGET).exists()
    wait_until(lambda: not long.leftovers(), GONE_S, "nothing is left")


def test_sbatch_fails_once(long: ClusterCheckout, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    failed = tmp_path / "failed"
    (programs / "sbatch").write_text(
        f'#!/bin/sh\n[ -e {failed} ] && exec {shutil.which("sbatch")} "$@"\ntouch {failed}\n'
        "echo 'sbatch: error: Batch job submission failed: Socket timed out' >&2\nexit 1\n"
    )
    (programs / "sbatch").chmod(0o755)
    first = long.snakemake("--retries=0", TARGET, PATH=f"{programs}:{os.environ['PATH']}")
    assert first.returncode != 0
    assert "Socket timed out" in first.output
    wait_for_nothing_left(long)
    finishes(long)


def test_held_default_ports_do_no_harm(long: ClusterCheckout) -> None:
    with ExitStack() as held:
        for port in (29500, 29400, 12355):
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            listener.listen()
        finishes(long)


def test_a_node_is_lost_and_the_trial_runs_on_the_other(
    checkout: Callable[..., ClusterCheckout], cluster: Cluster
) -> None:
    made = checkout(**{**LONG, "topologies": ["1x2"], "launchers": ["torchrun"]})
    made.copy.run("prepare")
    trial = "ddp/torchrun/1x2/r0"
    target = f"results/small/trials/{trial}/record.json"
    process = made.start("--retries=1", target)
    wait_for_steps(made, process, trial)
    node = cluster.run("squeue", "--noheader", "--format=%N").strip()
    slurmd = psutil.Process(cluster.pid(f"slurmd-{node}"))
    for lost in [slurmd, *slurmd.children(recursive=True), *made.ranks()]:
        if lost.is_running():
            lost.kill()
    try:  # SLURM itself gives the node up after its SlurmdTimeout
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output + made.logs()
        record = made.copy.records()[0]
        assert record["launch"]["slurm"]["nodes"] != [node]
        assert made.leftovers() == []
    finally:
        cluster.start_slurmd(node)
