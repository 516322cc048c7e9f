"""A copy of this checkout in which Snakemake really runs, with a configuration of a few seconds."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import yaml

ROOT = Path(__file__).parents[1]
NOT_COPIED = {
    ".git",
    ".venv",
    ".snakemake",
    "data",
    "results",
    "bundles",
    "snapshots",
    "tests",
    "node_modules",
    "build",
}
SECRETS = {  # of a user's environment, which have no place in what a run leaves
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-of-a-test",
    "HF_TOKEN": "hf_of-a-test",
    "DATABASE_URL": "postgres://me:hunter2-of-a-test@host/db",
    "NCCL_PASSWORD": "nccl-of-a-test",
}
MARK = "DPSCALE_TEST_RUN"  # in the environment of everything that a copy starts, so that survivors are found


def small_experiment(**changes: Any) -> dict[str, Any]:
    """An experiment whose trials take as long as their start; `changes` replace its keys."""
    experiment: dict[str, Any] = {
        "workload": {"dataset": "synthetic", "model_options": {"dropout": False}},
        "strategies": {"single": None},
        "launchers": ["spawn"],
        "topologies": ["1x1", "1x2"],
        "batch": {"per_device": 16},
        "epochs": 2,
        "repeats": 1,
        "collective_timeout_s": 60,
        "timeout_s": 120,
    }
    return {**experiment, **changes}


def small_config(experiment: dict[str, Any] | None = None, name: str = "small", **changes: Any) -> dict[str, Any]:
    return {
        "datasets": {"synthetic": {"train_samples": 192, "test_samples": 50}},
        "experiments": {name: experiment or small_experiment()},
        **changes,
    }


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    returncode: int
    output: str  # stdout and stderr, as a terminal shows them

    @property
    def jobs(self) -> dict[str, int]:
        """Rule -> number of its jobs, from Snakemake's job stats; empty where nothing is to be done."""
        if "Nothing to be done" in self.output:
            return {}
        table = re.search(r"^Job stats:\njob +count\n[- ]+\n(.*?)^total ", self.output, re.MULTILINE | re.DOTALL)
        assert table, self.output
        return {name: int(count) for name, count in (line.split() for line in table[1].splitlines())}

    @property
    def measured(self) -> set[str]:
        """strategy/launcher/topology/repeat of the trials that ran, or would run."""
        return set(re.findall(r"^    output: \S+/trials/(\S+)/record\.json", self.output, re.MULTILINE))

    @property
    def figures(self) -> set[str]:
        """Names of the figures that were made, or would be."""
        return {name.removeprefix("plot_") for name in self.jobs if name.startswith("plot_")}


@dataclass
class Checkout:
    """A copy of the project; everything that it starts carries its mark."""

    root: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def fresh(cls, root: Path, config: dict[str, Any]) -> Checkout:
        """A new copy: what git keeps of this checkout, without the tests."""
        root.mkdir(parents=True)
        for path in ROOT.iterdir():
            if path.name in NOT_COPIED or path.name.endswith("_cache"):
                continue
            if path.is_dir():
                shutil.copytree(path, root / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(path, root / path.name)
        copy = cls(root)
        copy.configure(config)
        return copy

    def copy(self, root: Path) -> Checkout:
        """With results, data and Snakemake's memory of them: times of files are kept."""
        shutil.copytree(self.root, root, symlinks=True)
        return Checkout(root)

    def configure(self, config: dict[str, Any]) -> None:
        (self.root / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))

    @property
    def config(self) -> dict[str, Any]:
        return yaml.safe_load((self.root / "config.yaml").read_text())

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace the first `old` in a file."""
        text = (self.root / path).read_text()
        assert old in text, f"{path} has no {old!r}"
        (self.root / path).write_text(text.replace(old, new, 1))

    def edit_code(self, path: str) -> None:
        """Change what a Python file does, without breaking it."""
        file = self.root / "scripts" / path
        file.write_text(file.read_text() + "\n\ndef added_by_a_test() -> int:\n    return 1\n")

    def environment(self, **changes: str) -> dict[str, str]:
        """The test's own, less what a make that started the tests left for a make that a test starts (its -w prints more)."""
        outside = {
            name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
        }
        return {**outside, MARK: self.mark, "PYTHONDONTWRITEBYTECODE": "1", **changes}

    def start(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        """Snakemake as a terminal starts it: leader of a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=cwd or self.root,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def snakemake(self, *arguments: str, cwd: Path | None = None, timeout_s: float = 600, **environment: str) -> Done:
        """Run `snakemake` with these arguments to its end, however it ends."""
        process = self.start(*arguments, cwd=cwd, **environment)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        finally:
            self.end()
        return Done(process.returncode, output)

    def run(self, *arguments: str, **keywords: Any) -> Done:
        """The same, on two cores; it must end well."""
        done = self.snakemake("--cores", "2", *arguments, **keywords)
        assert done.returncode == 0, done.output
        return done

    def dry_run(self, *arguments: str, **keywords: Any) -> Done:
        return self.run("-n", *arguments, **keywords)

    def refused(self, *arguments: str, **keywords: Any) -> str:
        """What Snakemake says when it must refuse."""
        done = self.snakemake("--cores", "2", *arguments, **keywords)
        assert done.returncode != 0, done.output
        return done.output

    def results(self, path: str = "") -> Path:
        return self.root / "results" / path

    def table(self, name: str, experiment: str = "small") -> pd.DataFrame:
        return pd.read_csv(self.results(f"{experiment}/tables/{name}.csv"), keep_default_na=False, na_values=[""])

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted(self.results().rglob("record.json"))]

    def processes(self) -> list[psutil.Process]:
        """Everything alive that this copy started."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def ranks(self) -> list[psutil.Process]:
        """The processes that train: the last ones below a launcher, but for the interpreter's own helper and the monitor."""
        return [
            process
            for process in self.processes()
            if any(part.endswith(("scripts/spawn.py", "scripts/torchrun.py")) for part in command_of(process.parents()))
            and not is_helper(process)
            and all(is_helper(child) for child in process.children())
        ]

    def end(self) -> None:
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def is_helper(process: psutil.Process) -> bool:
    helpers = ("scripts/sample.py", "scripts/tag.py")
    return any("resource_tracker" in part or part.endswith(helpers) for part in command_of([process]))


def command_of(processes: list[psutil.Process]) -> list[str]:
    found = []
    for process in processes:
        try:
            found += process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_s} s: {what}")


def send(process: subprocess.Popen[str], number: signal.Signals, to_group: bool) -> None:
    if to_group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


@cache
def whole_run(folder: Path) -> tuple[Checkout, Done]:
    """One full run of a small experiment, once for all tests of a session, by its temporary folder; change copies of it
    only. The processes that pytest-xdist shares the tests out to have a folder each, side by side."""
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    root, result = folder / "whole run", folder / "whole run.json"
    with (folder / "whole run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.write_text(json.dumps(asdict(_run_all(root))))
    return Checkout(root), Done(**json.loads(result.read_text()))


def _run_all(root: Path) -> Done:
    strategies = {
        "single": None,
        "ddp": {"topologies": ["1x2"], "launchers": ["spawn", "torchrun"]},
        "independent": None,
        "data_parallel": None,
    }
    experiment = small_experiment(strategies=strategies, repeats=2)
    return Checkout.fresh(root, small_config(experiment)).run(**SECRETS)
