"""Launching: one trial, its ranks and nobody else's, and nothing of it left when it ends, however it ends."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from launching import (
    ENDLESS,
    SCRIPTS,
    Launch,
    launch,
    launch_command,
    launch_environment,
    measured,
    running,
    small_trial,
    starts_here,
    wait_until,
)

from dpscale.environment import describe_machine
from dpscale.launching import attempt
from dpscale.launching.launches import missing_program
from dpscale.record import RECORD, Record
from dpscale.trial import Trial
from launch import environment_for

SOON_S = 30.0  # from a fault to the end of launch.py
LAUNCHERS = pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
AND_MPIRUN = pytest.mark.parametrize("launcher", ["spawn", "torchrun", *["mpirun"] * starts_here("mpirun")])


def endless(launcher: str = "spawn", **changes: object) -> Trial:
    return small_trial(launcher=launcher, steps=ENDLESS, batch_size_per_device=2, **changes)


def ended(started: Launch) -> float:
    """Wait for its end; how long it took, in s."""
    begin = time.monotonic()
    started.end(timeout_s=60)
    return time.monotonic() - begin


# Who the ranks are


@AND_MPIRUN
def test_variables_of_other_launchers_do_not_reach_the_ranks(launcher: str, data: Path, tmp_path: Path):
    stray = {
        "RANK": "7",
        "LOCAL_RANK": "7",
        "WORLD_SIZE": "99",
        "LOCAL_WORLD_SIZE": "99",
        "GROUP_RANK": "5",
        "MASTER_ADDR": "192.0.2.1",
        "MASTER_PORT": "1",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "PET_NNODES": "4",
        "PET_RDZV_BACKEND": "c10d",
        "SLURM_JOB_ID": "1",
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "8",
        "SLURM_NODEID": "2",
        "SLURM_NODELIST": "gpu[07-08]",  # mpirun would ask for these
        "SLURM_TASKS_PER_NODE": "4(x2)",
    }
    done = measured(small_trial(launcher=launcher), data, tmp_path, **stray)
    assert [facts.rank for facts in done.record.ranks] == [0, 1]


def by_hand(trial: Trial, data: Path, folder: Path, nproc: int, **variables: str) -> subprocess.CompletedProcess[str]:
    """torchrun as a user types it, without launch.py."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            f"--nproc-per-node={nproc}",
            "--master-addr=127.0.0.1",
            f"--master-port={attempt.free_port()}",
            str(SCRIPTS / "train.py"),
            f"--data={data}",
            f"--out={folder}",
            *trial.to_args(),
        ],
        env={**launch_environment(folder), "GLOO_SOCKET_IFNAME": "lo", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_threads_per_rank_are_the_trials_whoever_starts_it(data: Path, tmp_path: Path):
    (tmp_path / "hand").mkdir()
    trial = small_trial(threads_per_rank=3, evaluate=False)
    by_spawn = measured(trial, data, tmp_path / "spawn", OMP_NUM_THREADS="1").record
    by_torchrun = measured(small_trial(threads_per_rank=3, launcher="torchrun"), data, tmp_path / "torchrun").record
    done = by_hand(trial, data, tmp_path / "hand", nproc=2, OMP_NUM_THREADS="5")
    assert done.returncode == 0, done.stderr
    hand = Record.read(tmp_path / "hand" / RECORD)
    for record in (by_spawn, by_torchrun, hand):
        assert [facts.threads for facts in record.ranks] == [3, 3]


STEPS_OF_36_MIB = """
import resource
def step():
    kept = [bytearray(9 * 2**20) for _ in range(4)]
    while kept:
        kept.pop()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
before = faults()
for _ in range(10):
    step()
print(faults() - before)
"""


def page_faults(environment: dict[str, str]) -> int:
    command = [sys.executable, "-c", STEPS_OF_36_MIB]
    return int(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_ranks_on_a_cpu_keep_the_memory_of_a_step_for_the_next(tmp_path: Path):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    assert page_faults(plain) > 10 * 1000
    assert page_faults(environment_for(small_trial(), tmp_path)) < 10 * 10


def test_a_setting_of_ones_own_of_the_allocator_is_kept_and_recorded(data: Path, tmp_path: Path):
    record = measured(small_trial(), data, tmp_path, MALLOC_TRIM_THRESHOLD_="123456").record
    settings = record.environment["settings"]
    assert settings["MALLOC_TRIM_THRESHOLD_"] == "123456"
    assert settings["MALLOC_MMAP_THRESHOLD_"] == str(32 * 2**20)


def test_another_world_size_than_the_trials_is_refused(data: Path, tmp_path: Path):
    done = by_hand(small_trial(), data, tmp_path, nproc=1)
    assert done.returncode != 0
    assert "the launcher started 1 ranks, 1 on this node, but the trial asks for 2" in done.stderr
    assert not (tmp_path / RECORD).exists()


def test_train_without_a_launcher_says_how_to_start_it(data: Path, tmp_path: Path):
    command = [sys.executable, str(SCRIPTS / "train.py"), f"--data={data}", f"--out={tmp_path}"]
    done = subprocess.run([*command, *small_trial().to_args()], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "RANK" in done.stderr
    assert done.stderr.strip().endswith("start train.py through scripts/launch.py")


def test_launch_under_torchrun_is_refused(data: Path, tmp_path: Path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"),
            f"--master-port={attempt.free_port()}",
            "--",  # or torchrun takes --log for one of its own
            *launch_command(small_trial(), data, tmp_path)[1:],
        ],
        env=launch_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=2 * SOON_S,
        check=False,
    )
    assert done.returncode != 0
    assert "launch.py was started by torchrun" in done.stderr
    assert not (tmp_path / RECORD).exists()


@pytest.mark.parametrize(
    ("variable", "launcher"),
    [
        ("DPSCALE_DRAFTS", "scripts/launch.py"),
        ("OMPI_COMM_WORLD_RANK", "mpirun"),
        ("HOROVOD_RANK", "horovodrun"),
    ],
)
def test_launch_under_another_launcher_is_refused(variable: str, launcher: str, data: Path, tmp_path: Path):
    done = launch(small_trial(), data, tmp_path, **{variable: "0"})
    assert done.returncode == 1
    assert f"launch.py was started by {launcher}" in done.stderr


def a_program(folder: Path, name: str, says: str) -> str:
    """The PATH of a machine whose `name` says this of itself."""
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize(
    ("launcher", "found", "reason"),
    [
        ("mpirun", None, "needs mpirun: not on this machine's PATH (apt-get install openmpi-bin)"),
        ("horovodrun", None, "needs horovodrun: not on this machine's PATH (make horovod)"),
        (
            "mpirun",
            "HYDRA build details:",
            "needs Open MPI's mpirun: this one is HYDRA build details: (apt-get install openmpi-bin)",
        ),
    ],
    ids=["mpirun", "horovodrun", "another mpirun"],
)
def test_a_trial_whose_launcher_is_not_there_is_unavailable_with_how_to_get_it(
    launcher: str, found: str | None, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    path = "/nowhere" if found is None else a_program(tmp_path / "bin", launcher, found)
    monkeypatch.setenv("PATH", path)
    assert missing_program(small_trial(launcher=launcher)) == reason


def test_the_record_of_such_a_trial_says_so(data: Path, tmp_path: Path):
    path = a_program(tmp_path / "bin", "mpirun", "HYDRA build details:")
    done = measured(small_trial(launcher="mpirun"), data, tmp_path / "trial", PATH=path)
    assert (done.record.status, done.record.launch["port_attempts"]) == ("unavailable", 0)
    assert "this one is HYDRA" in (done.record.reason or "")
    assert "unavailable: needs Open MPI's mpirun" in done.stderr
    assert done.steps.num_rows == 0


def test_four_ranks_run_on_fewer_cpus_and_say_so(data: Path, tmp_path: Path):
    threads = describe_machine("cpu")["usable_cpus"]
    done = measured(small_trial(devices=4, threads_per_rank=threads), data, tmp_path)
    assert [facts.rank for facts in done.record.ranks] == [0, 1, 2, 3]
    assert done.record.oversubscribed
    assert f"oversubscribed: 4 ranks x {threads} threads on {threads} usable CPUs" in done.stderr


def test_a_cuda_trial_without_cuda_ends_with_one_clear_error(data: Path, tmp_path: Path):
    done = launch(
        small_trial(device="cuda", backend="nccl"), data, tmp_path, CUDA_VISIBLE_DEVICES=""
    )  # hides those that there are
    assert done.returncode == 1
    assert done.stderr.count("no CUDA device is visible here") == 1
    assert done.leaves_nothing_behind()


# Addresses and ports


def ipv6_loopback() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_spawn_meets_at_either_loopback_address(address: str, data: Path, tmp_path: Path):
    if address == "::1" and not ipv6_loopback():
        pytest.skip("this machine has no IPv6 loopback")
    flags = ["--nnodes=1", "--node-rank=0", "--nproc-per-node=2", f"--master-addr={address}"]
    done = subprocess.run(
        [
            *(sys.executable, str(SCRIPTS / "spawn.py"), *flags, f"--master-port={attempt.free_port()}", "--"),
            *("train.py", f"--data={data}", f"--out={tmp_path}", *small_trial(evaluate=False).to_args()),
        ],
        env={**os.environ, "DPSCALE_DRAFTS": str(tmp_path), "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(Record.read(tmp_path / RECORD).ranks) == 2


@pytest.mark.parametrize(
    ("launcher", "strategy"),
    [
        ("spawn", "ddp"),
        ("torchrun", "ddp"),
        *[("mpirun", "ddp")] * starts_here("mpirun"),
        ("spawn", "deepspeed"),
    ],
)
def test_a_local_run_listens_on_loopback_only_and_nothing_does_after_it(
    launcher: str, strategy: str, data: Path, tmp_path: Path
):
    with running(endless(launcher, strategy=strategy, base=strategy), data, tmp_path) as started:
        started.rank_pids()
        listening = {
            connection.laddr
            for process in started.survivors()
            if process.name() != "mpirun"  # its own port is open to the network: Open MPI 4 has no option against it
            for connection in process.net_connections()
            if connection.status == psutil.CONN_LISTEN
        }
        ports = {port for _, port in listening}
    assert {address for address, _ in listening} <= {"127.0.0.1", "::1"}
    assert ports
    wait_until(lambda: not started.survivors(), "the end of all processes", timeout_s=SOON_S)
    assert not ports & {
        connection.laddr.port for connection in psutil.net_connections() if connection.status == psutil.CONN_LISTEN
    }


def held(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_the_usual_ports_may_be_taken(data: Path, tmp_path: Path):
    holders = []
    for port in (29500, 29400, 12355):
        try:
            holders.append(held(port))
        except OSError:  # somebody else holds it, which serves as well
            continue
    try:
        measured(small_trial(launcher="torchrun", evaluate=False), data, tmp_path)
    finally:
        for holder in holders:
            holder.close()


@LAUNCHERS
def test_a_port_taken_between_choice_and_bind_is_replaced(launcher: str, data: Path, tmp_path: Path):
    with closing(held(0)) as holder:
        port = holder.getsockname()[1]
        trial = small_trial(launcher=launcher, evaluate=False)
        done = measured(trial, data, tmp_path, inject="first_port_is_taken", DPSCALE_TEST_PORT=str(port))
    assert done.record.launch["port_attempts"] == 2
    assert f"port {port} was taken meanwhile" in done.log


def test_a_failure_after_a_taken_port_is_the_one_that_is_told(data: Path, tmp_path: Path):
    with closing(held(0)) as holder:
        port = holder.getsockname()[1]
        inject = "first_port_is_taken,raises"
        # two attempts, in each of which a rank may have to be waited for
        trial = small_trial(collective_timeout_s=20.0)
        done = launch(trial, data, tmp_path, inject=inject, rank=1, DPSCALE_TEST_PORT=str(port))
    assert "rank 1 failed with RuntimeError: planted" in done.stderr


def test_ports_lie_below_those_that_the_kernel_hands_out():
    ports = {attempt.free_port() for _ in range(200)}
    assert min(ports) >= attempt.LOWEST_PORT
    assert max(ports) < attempt.ephemeral_ports_begin()


def test_a_port_that_somebody_listens_on_is_not_chosen(monkeypatch: pytest.MonkeyPatch):
    with closing(held(0)) as holder:
        taken = holder.getsockname()[1]
        monkeypatch.setattr(attempt, "LOWEST_PORT", taken)
        monkeypatch.setattr(attempt, "ephemeral_ports_begin", lambda: taken + 1000)
        assert taken not in {attempt.free_port() for _ in range(100)}


def test_a_machine_whose_ephemeral_range_leaves_no_room_still_gets_a_port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attempt, "ephemeral_ports_begin", lambda: 1024)
    assert attempt.free_port() >= attempt.LOWEST_PORT


def test_launches_at_the_same_time_have_ports_of_their_own(data: Path, tmp_path: Path):
    trials = [small_trial("single", 1, repeat=repeat, launcher="torchrun") for repeat in range(4)]
    commands = [launch_command(trial, data, tmp_path / str(trial.repeat)) for trial in trials]
    processes = [subprocess.Popen(command, env=launch_environment(tmp_path)) for command in commands]
    assert [process.wait(timeout=180) for process in processes] == [0, 0, 0, 0]
    logs = [(tmp_path / str(trial.repeat) / "trial.log").read_text() for trial in trials]
    ports = {log.split("--master-port=")[1].split()[0] for log in logs}
    assert len(ports) == 4


def test_an_interface_that_is_not_there_is_named(data: Path, tmp_path: Path):
    done = launch(small_trial(), data, tmp_path, GLOO_SOCKET_IFNAME="eth9")
    assert done.returncode == 1
    assert "GLOO_SOCKET_IFNAME=eth9: this machine has no such interface" in done.stderr
    assert done.leaves_nothing_behind()


def test_an_interface_that_is_there_is_kept(data: Path, tmp_path: Path):
    done = measured(small_trial(evaluate=False), data, tmp_path, GLOO_SOCKET_IFNAME="lo")
    assert done.record.environment["settings"]["GLOO_SOCKET_IFNAME"] == "lo"


# How it ends


@AND_MPIRUN
def test_a_killed_rank_ends_all_is_named_and_the_same_command_then_finishes(launcher: str, data: Path, tmp_path: Path):
    with running(endless(launcher), data, tmp_path) as started:
        os.kill(started.rank_pids()[1], signal.SIGKILL)
        assert ended(started) < SOON_S
    assert started.returncode == 1
    for text in (started.stderr, started.log):
        assert "rank 1 was killed by SIGKILL" in text
    assert started.leaves_nothing_behind()
    assert measured(small_trial(launcher=launcher), data, tmp_path).record.status == "ok"


@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        ("spawn", signal.SIGINT),
        ("torchrun", signal.SIGINT),
        ("torchrun", signal.SIGTERM),
        ("spawn", signal.SIGHUP),
        *[("mpirun", signal.SIGINT)] * starts_here("mpirun"),
    ],
)
def test_a_signal_ends_launch_and_its_ranks(launcher: str, number: signal.Signals, data: Path, tmp_path: Path):
    with running(endless(launcher), data, tmp_path) as started:
        started.rank_pids()
        started.process.send_signal(number)
        assert ended(started) < SOON_S
    assert started.returncode == 128 + number
    assert f"ended by {number.name}" in started.log
    assert "Traceback" not in started.stderr
    assert started.leaves_nothing_behind()


def test_an_impatient_user_leaves_nothing_behind_either(data: Path, tmp_path: Path):
    with running(endless(), data, tmp_path) as started:
        started.rank_pids()
        while started.process.poll() is None:
            started.process.send_signal(signal.SIGINT)
            time.sleep(0.01)
        started.end()
    assert started.returncode == 128 + signal.SIGINT
    assert started.leaves_nothing_behind()


def test_a_signal_during_the_start_leaves_nothing_behind(data: Path, tmp_path: Path):
    with running(endless(), data, tmp_path) as started:
        wait_until(lambda: "spawn.py" in started.log, "the start of the spawner")
        started.process.send_signal(signal.SIGTERM)
        assert ended(started) < SOON_S
    assert started.returncode == 128 + signal.SIGTERM
    assert started.leaves_nothing_behind()


@AND_MPIRUN
def test_ranks_and_loader_workers_die_with_a_killed_launch_and_its_traces_do_no_harm(
    launcher: str, data: Path, tmp_path: Path
):
    with running(endless(launcher, loader_workers=1), data, tmp_path) as started:
        started.rank_pids()
        started.process.kill()
        started.end()
        wait_until(lambda: not started.survivors(), "the end of all processes", timeout_s=SOON_S)
    assert (tmp_path / ".attempt").exists()
    assert measured(small_trial(launcher=launcher), data, tmp_path).record.status == "ok"


@AND_MPIRUN
def test_a_killed_launcher_takes_its_ranks_with_it(launcher: str, data: Path, tmp_path: Path):
    with running(endless(launcher), data, tmp_path) as started:
        started.rank_pids()
        (below,) = psutil.Process(started.process.pid).children()
        below.kill()
        assert ended(started) < SOON_S
    assert started.returncode == 1
    assert "SIGKILL" in started.stderr
    assert started.leaves_nothing_behind()


@AND_MPIRUN
def test_the_error_is_that_of_the_rank_which_failed_first(launcher: str, data: Path, tmp_path: Path):
    done = launch(small_trial(launcher=launcher), data, tmp_path, inject="raises,closes_slowly", rank=1)
    assert done.returncode == 1
    assert "rank 1 failed with RuntimeError: planted in the third step" in done.stderr
    lines = done.log.splitlines()
    assert all(re.match(r"\[ *\d+\.\d{3}\] ", line) for line in lines)
    assert re.search(r"\] \[rank 0\] steps begin$", done.log, re.MULTILINE)
    assert re.search(r"\] \[rank 1\] Traceback", done.log)
    assert re.search(r"\] \[rank 1\] RuntimeError: planted in the third step$", done.log, re.MULTILINE)
    assert lines[-1].endswith("] failed: rank 1 failed with RuntimeError: planted in the third step")
    assert done.leaves_nothing_behind()


def test_a_rank_that_ends_without_a_word_is_named(data: Path, tmp_path: Path):
    done = launch(small_trial("single", 1), data, tmp_path, inject="ends_early")
    assert "rank 0 ended with exit code 7" in done.stderr


def test_ranks_that_hang_and_are_deaf_to_signals_end_at_the_time_limit(data: Path, tmp_path: Path):
    begin = time.monotonic()
    done = launch(small_trial(timeout_s=12.0), data, tmp_path, inject="hangs_deaf_to_signals")
    assert 12 < time.monotonic() - begin < 12 + SOON_S
    assert done.returncode == 1
    assert "not done after timeout_s=12" in done.stderr
    assert done.leaves_nothing_behind()


def test_a_rank_that_waits_too_long_for_the_others_says_so(data: Path, tmp_path: Path):
    done = launch(small_trial(collective_timeout_s=10.0), data, tmp_path, inject="hangs", rank=1)
    assert done.returncode == 1
    assert "rank 0 failed" in done.stderr
    assert "collective_timeout_s" in done.stderr
    assert done.leaves_nothing_behind()


def test_a_second_launch_of_the_same_trial_is_refused_and_leaves_the_first_alone(data: Path, tmp_path: Path):
    with running(endless(), data, tmp_path) as first:
        first.rank_pids()
        begin = first.log
        with running(endless(), data, tmp_path) as second:
            assert ended(second) < SOON_S
        assert second.returncode == 1
        assert f"process {first.process.pid} on {socket.gethostname()} measures this trial right now" in second.stderr
        assert first.log.startswith(begin)
        assert first.process.poll() is None


def test_a_lock_and_drafts_of_a_dead_launch_do_no_harm(data: Path, tmp_path: Path):
    (tmp_path / ".lock").write_text("1 on elsewhere\n")
    (tmp_path / ".attempt").mkdir()
    (tmp_path / ".attempt" / "failure-0.json").write_text('{"when_ns": 0, "message": "of long ago"}')
    done = launch(small_trial("single", 1), data, tmp_path, inject="raises")
    assert "planted in the third step" in done.stderr


# What is said of a failure


def failure_of(drafts: Path, *exits: tuple[int, int], failures: dict[int, str]) -> str:
    """`exits` are (rank, exit code); failures are in the order of time."""
    for rank, exitcode in exits:
        attempt.write_exit(drafts, rank, exitcode)
    for when, (rank, message) in enumerate(failures.items()):
        (drafts / f"failure-{rank}.json").write_text(json.dumps({"when_ns": when, "message": message}))
    return attempt.explain_failure(drafts, 1)


def test_a_kill_explains_the_connections_that_others_lost(tmp_path: Path):
    text = failure_of(tmp_path, (1, -signal.SIGKILL), failures={0: "rank 0 failed with connection closed"})
    assert text == "rank 1 was killed by SIGKILL: out of memory is the usual cause"


def test_a_rank_that_a_watchdog_aborts_does_not_hide_the_failure_that_it_waited_for(tmp_path: Path):
    assert failure_of(tmp_path, (0, -signal.SIGABRT), failures={1: "rank 1 failed with X"}) == "rank 1 failed with X"


def test_the_earliest_failure_is_the_cause(tmp_path: Path):
    assert failure_of(tmp_path, (0, 1), failures={1: "the cause", 0: "connection closed"}) == "the cause"


def test_the_first_word_of_a_rank_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "1")
    attempt.write_failure(tmp_path, RuntimeError("first"))
    attempt.write_failure(tmp_path, RuntimeError("second"))
    assert attempt.explain_failure(tmp_path, 1) == "rank 1 failed with RuntimeError: first"
