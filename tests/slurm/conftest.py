"""The cluster, a checkout whose experiments run on it, and what drills look for afterwards."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pipeline import ROOT, Checkout, Done, small_config, small_experiment

from slurm import cluster as slurm_cluster
from slurm.cluster import Cluster

# The profile's own checks are far apart, for real clusters, and the plugin lets them grow by 10 s each; these find the end
# of a job of seconds, with the change `checks_often` of tests/injected.
QUICK_CHECKS = ("--slurm-init-seconds-before-status-checks=1", "--seconds-between-status-checks=1", "--latency-wait=10")

CHECKS_OFTEN = {"PYTHONPATH": str(ROOT / "tests" / "injected"), "DPSCALE_TEST_INJECT": "checks_often"}


@dataclass
class ClusterCheckout:
    """A copy of the project on the cluster's login node."""

    copy: Checkout
    cluster: Cluster

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """`snakemake --profile slurm` with these arguments, leader of a process group of its own."""
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *QUICK_CHECKS, *arguments]
        return subprocess.Popen(
            [*self.cluster.prefix(self.copy.root), *command],
            env=self.copy.environment(**{**CHECKS_OFTEN, **environment}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def snakemake(self, *arguments: str, timeout_s: float = 600, **environment: str) -> Done:
        process = self.start(*arguments, **environment)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"not done after {timeout_s} s:\n{process.communicate()[0]}") from None
        return Done(process.returncode, output)

    def run(self, *arguments: str) -> Done:
        done = self.snakemake(*arguments)
        assert done.returncode == 0, done.output + self.logs()
        return done

    def logs(self) -> str:
        """Logs of jobs and trials, for a test that fails."""
        paths = [*self.copy.root.glob(".snakemake/slurm_logs/**/*.log"), *self.copy.results().rglob("trial.log")]
        return "\n".join(f"== {path}\n{path.read_text()[-3000:]}" for path in paths)

    def trial_log(self, trial: str) -> str:
        path = self.copy.results(f"small/trials/{trial}/trial.log")
        return path.read_text() if path.exists() else ""

    def ranks(self) -> list[psutil.Process]:
        """The processes that train under torchrun, in the order of ranks."""
        found = {}
        for process in self.copy.processes():
            try:
                if process.name().startswith("python") and any(
                    part.endswith("/train.py") for part in process.cmdline()
                ):
                    found[process.environ().get("RANK")] = process
            except psutil.NoSuchProcess:
                continue
        return [found[rank] for rank in sorted(rank for rank in found if rank is not None)]

    def leftovers(self) -> list[Any]:
        """Queued jobs, processes that were started from this copy, and drafts under a trial's folder."""
        drafts = list(self.copy.results().rglob(".attempt"))
        return [*self.cluster.queue(), *self.copy.processes(), *drafts]


@contextmanager
def a_folder_for_the_cluster() -> Iterator[Path]:
    """One that others may look into: pytest's own are for one user, and munge refuses that."""
    with tempfile.TemporaryDirectory(prefix="dpscale-slurm-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if reason := slurm_cluster.why_not():
        pytest.skip(reason)
    with a_folder_for_the_cluster() as folder:
        running = Cluster(folder)
        yield running
        running.stop()


@pytest.fixture
def checkout(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., ClusterCheckout]]:
    """Makes a copy whose one experiment, `small`, has these keys changed; nothing of it may be left at the end."""
    made: list[ClusterCheckout] = []

    def make(on: Cluster | None = None, **changes: Any) -> ClusterCheckout:
        settings = {name: changes.pop(name) for name in ("cluster",) if name in changes}
        config = small_config(small_experiment(**changes), **settings)
        copy = Checkout.fresh(tmp_path / f"checkout{len(made)}", config)
        made.append(ClusterCheckout(copy, on or cluster))
        return made[-1]

    yield make
    for item in made:
        item.copy.end()
