"""Real launches for tests: small trials, started as the `trial` rule starts them, and watched from outside."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow
from factories import NEEDED_OPTIONS

from dpscale.launching.attempt import free_port
from dpscale.launching.launchers import LAUNCHERS
from dpscale.record import MONITOR, RECORD, STEPS, Record, read_steps
from dpscale.strategies import STRATEGIES
from dpscale.trial import Trial

TESTS = Path(__file__).parent
SCRIPTS = TESTS.parent / "scripts"
STANDINS = TESTS / "standins"  # packages and programs in the place of those that are not on every machine
TRAIN_SAMPLES, TEST_SAMPLES = 640, 103  # the second is prime: no number of ranks divides it
ENDLESS = 1_000_000  # steps; such a trial ends because a test ends it
SGD = {"name": "sgd", "lr": 0.05, "momentum": None, "weight_decay": 0.0}
ADADELTA = {"name": "adadelta", "lr": 0.5, "momentum": None, "weight_decay": 0.0}


def small_trial(strategy: str = "ddp", devices: int = 2, **changes: object) -> Trial:
    """A trial of some seconds on the test's dataset, without dropout."""
    fields = {
        "experiment": "test",
        "strategy": strategy,
        "base": strategy,
        "options": NEEDED_OPTIONS.get(strategy, {}),
        "launcher": "spawn",
        "nodes": 1,
        "devices_per_node": devices,
        "world_size": 1 if STRATEGIES[strategy].single_process else devices,
        "repeat": 0,
        "device": "cpu",
        "backend": "gloo",
        "precision": "fp32",
        "compile": False,
        "channels_last": False,
        "model": "convnet",
        "model_options": {"dropout": False},
        "dataset": "synthetic",
        "train_samples": None,
        "test_samples": None,
        "optimizer": SGD,
        "scaling": "weak",
        "batch_size_per_device": 8,
        "headroom_percent": None,
        "epochs": None,
        "warmup_epochs": None,
        "steps": 6,
        "warmup_steps": 2,
        "evaluate": True,
        "explain": False,
        "threads_per_rank": 1,
        "loader_workers": 0,
        "monitor_interval_s": 0.5,
        "seed": 0,
        "timeout_s": 120.0,
        "collective_timeout_s": 60.0,
        "checkpoint_interval_s": 600.0,
    }
    return Trial(**{**fields, **changes})


@dataclass
class Trained:
    """What a training leaves in its folder."""

    folder: Path

    @property
    def log(self) -> str:
        path = self.folder / "trial.log"
        return path.read_text() if path.exists() else ""

    @property
    def record(self) -> Record:
        return Record.read(self.folder / RECORD)

    @property
    def steps(self) -> pyarrow.Table:
        return read_steps(self.folder / RECORD)

    def found(self, name: str) -> list:
        """What each rank left under this name (changes.leave), in the order of ranks."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob(f"{name}-*.json"))]


@dataclass
class Launch(Trained):
    """A launch.py and what it leaves."""

    process: subprocess.Popen[str]

    def end(self, timeout_s: float = 120) -> Launch:
        """Wait for its end; `stderr` and `returncode` are there afterwards."""
        try:
            self.stderr = self.process.communicate(timeout=timeout_s)[1]
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.folder}: not done after {timeout_s:g} s; its log:\n{self.log}") from None
        self.returncode = self.process.returncode
        return self

    def rank_pids(self, ranks: int = 2) -> list[int]:
        """The ranks' pids, as soon as all of them train."""
        wait_until(lambda: "steps begin" in self.log and len(self.found("pid")) == ranks, f"{ranks} ranks to train")
        return self.found("pid")

    def survivors(self) -> list[psutil.Process]:
        """Processes that carry this launch's folder in their command line or environment."""
        return [process for process in psutil.process_iter() if str(self.folder) in _traces(process)]

    def leaves_nothing_behind(self) -> bool:
        """No process (the kernel may take a moment), no draft, no record."""
        wait_until(lambda: not self.survivors(), "the end of all processes", timeout_s=10)
        return not any((self.folder / name).exists() for name in (".attempt", RECORD, STEPS, MONITOR))


def _traces(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return " ".join([*process.cmdline(), *process.environ().values()])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def launch_command(trial: Trial, data: Path, folder: Path) -> list[str]:
    script = str(SCRIPTS / "launch.py")
    return [
        sys.executable,
        script,
        f"--data={data}",
        f"--folder={folder}",
        f"--log={folder / 'trial.log'}",
        *trial.to_args(),
    ]


def launch_environment(folder: Path, inject: str = "", rank: int | str = "all", **variables: str) -> dict[str, str]:
    """This process's environment, with the names of changes (tests/injected/changes) and the rank they concern."""
    return {
        **{name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")},
        "PYTHONPATH": os.pathsep.join([str(TESTS / "injected"), os.environ.get("PYTHONPATH", "")]),
        "DPSCALE_TEST_INJECT": inject,
        "DPSCALE_TEST_RANK": str(rank),
        "DPSCALE_TEST_OUT": str(folder),
        **variables,
    }


def standins() -> dict[str, str]:
    """Variables under which a launch finds them."""
    return {
        "PYTHONPATH": os.pathsep.join([str(TESTS / "injected"), str(STANDINS)]),
        "PATH": os.pathsep.join([str(STANDINS / "bin"), os.environ["PATH"]]),
    }


def starts_here(launcher: str) -> bool:
    """Whether this machine has what a launcher needs."""
    program = LAUNCHERS[launcher].program
    return program is None or shutil.which(program) is not None


@contextmanager
def running(
    trial: Trial,
    data: Path,
    folder: Path,
    *,
    inject: str = "announce_ranks",
    rank: int | str = "all",
    prefix: Sequence[str] = (),
    more: Sequence[str] = (),
    **variables: str,
) -> Iterator[Launch]:
    """launch.py on its way; whatever the test does, it is ended at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [*prefix, *launch_command(trial, data, folder), *more],
        env=launch_environment(folder, inject, rank, **variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    launch = Launch(folder, process)
    try:
        yield launch
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=30)


def launch(trial: Trial, data: Path, folder: Path, *, inject: str = "", **how: Any) -> Launch:
    """launch.py from start to end."""
    with running(trial, data, folder, inject=inject, **how) as started:
        return started.end()


def measured(trial: Trial, data: Path, folder: Path, **how: Any) -> Launch:
    """A launch that must end well."""
    done = launch(trial, data, folder, **how)
    assert done.returncode == 0, done.stderr + done.log
    return done


# Ranks without a launcher: for what they compute. A launch spends most of its time on imports; these are forked from a
# server that has them behind it, as scripts/spawn.py forks its own.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch._dynamo", "train"])


def trained(
    trial: Trial,
    data: Path,
    folder: Path,
    *,
    inject: str = "",
    rank: int | str = "all",
    more: Sequence[str] = (),
    exitcode: int = 0,
    **variables: str,
) -> Trained:
    """train.py on forked ranks, which must end with that exit code; the record is the draft that launch.py would complete."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    loopback = next(name for _, name in socket.if_nameindex() if name in ("lo", "lo0"))
    ranks = []
    # the server takes them at its start: where its modules lie, and threads as a launch has them
    with _variables(PYTHONPATH=str(SCRIPTS), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1"):
        for number in range(trial.world_size):
            place = {
                "RANK": number,
                "LOCAL_RANK": number % trial.ranks_per_node,
                "WORLD_SIZE": trial.world_size,
                "LOCAL_WORLD_SIZE": trial.ranks_per_node,
                "GROUP_RANK": number // trial.ranks_per_node,  # several nodes are all this machine
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "GLOO_SOCKET_IFNAME": loopback,
                "DPSCALE_DRAFTS": folder,
                # for the monitor, which is a process of its own
                "PYTHONPATH": os.pathsep.join([str(TESTS / "injected"), str(SCRIPTS)]),
                "DPSCALE_TEST_INJECT": inject,
                "DPSCALE_TEST_RANK": rank,
                "DPSCALE_TEST_OUT": folder,
                **variables,
            }
            arguments = [f"--data={data}", f"--out={folder}", *more, *trial.to_args()]
            texts = {name: str(value) for name, value in place.items()}
            ranks.append(SERVER.Process(target=_become_rank, args=(arguments, texts, inject, folder / "trial.log")))
            ranks[-1].start()
    deadline = time.monotonic() + trial.timeout_s
    for process in ranks:
        process.join(max(0.0, deadline - time.monotonic()))
    exitcodes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    done = Trained(folder)
    assert exitcodes == [exitcode] * trial.world_size, f"exit codes {exitcodes} of {trial.id}\n{done.log}"
    return done


def _become_rank(arguments: list[str], variables: dict[str, str], inject: str, log: Path) -> None:
    with log.open("a") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    os.environ.update(variables)
    sys.path.append(str(TESTS / "injected"))
    from changes import CHANGES

    import train

    for name in filter(None, inject.split(",")):
        CHANGES[name][1]()
    train.main(arguments)


@contextmanager
def _variables(**values: str) -> Iterator[None]:
    """This process's environment with these in it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)
