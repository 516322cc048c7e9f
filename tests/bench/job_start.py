"""From a SLURM job's start to its trial's first timed step on two nodes, beyond what importing torch takes.

torchrun imports it twice, one after the other, in its agent and in the ranks that the agent starts: both are taken off.

The job is submitted by `snakemake --profile slurm`, so it holds all that a user's job does: Snakemake inside the job,
the srun over the nodes, the launchers, the ranks. It runs on the tests' own SLURM, two nodes on this one machine.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from common import REPOSITORY, Comparison, NotHere, Settings
from startup import import_torch_s

from dpscale.record import Record

sys.path.insert(0, str(REPOSITORY / "tests"))

from pipeline import Checkout, small_config, small_experiment
from slurm.cluster import Cluster, why_not
from slurm.conftest import ClusterCheckout, a_folder_for_the_cluster

GOAL_S = 5.0
IMPORTS = {"spawn": 1, "torchrun": 2}  # launcher -> imports of torch, one after the other, before the first step


def run(settings: Settings) -> Iterator[Comparison]:
    if reason := why_not():
        raise NotHere(reason)
    experiment = small_experiment(
        strategies={"ddp": None}, topologies=["2x1"], launchers=list(IMPORTS), epochs=None, steps=2, warmup_steps=1
    )
    with a_folder_for_the_cluster() as folder:
        cluster = Cluster(folder)
        try:
            checkout = ClusterCheckout(Checkout.fresh(settings.folder / "checkout", small_config(experiment)), cluster)
            checkout.copy.run("prepare")
            pairs: dict[str, list[tuple[float, float]]] = {launcher: [] for launcher in IMPORTS}
            for _ in range(settings.pairs):
                for launcher, imports in IMPORTS.items():
                    started_s = job_start_to_first_step_s(checkout, launcher)
                    pairs[launcher].append((started_s, sum(import_torch_s() for _ in range(imports))))
        finally:
            cluster.stop()
    for launcher, imports in IMPORTS.items():
        yield Comparison(
            name=f"SLURM job's start to the first timed step, 2 nodes by {launcher}, minus {imports} x `import torch`",
            first="job's start to the first timed step, s; SLURM gives the start in whole seconds, rounded down",
            second=f"{imports} fresh interpreters that import torch, one after the other, s",
            pairs=pairs[launcher],
            says="first - second",
            unit="s",
            goal=GOAL_S,
            goal_is="at most",
        )


def job_start_to_first_step_s(checkout: ClusterCheckout, launcher: str) -> float:
    target = f"results/small/trials/ddp/{launcher}/2x1/r0/record.json"
    path: Path = checkout.copy.root / target
    path.unlink(missing_ok=True)
    checkout.run(target)
    record = Record.read(path)
    job_id = record.launch["slurm"]["job_id"]
    job = checkout.cluster.run("scontrol", "show", "job", "--oneliner", job_id)
    started = re.search(r"StartTime=(\S+)", job)
    assert started, job
    (segment,) = record.timed_segments
    first_step_s = max(start for start, _ in segment.windows_s) + (time.time() - time.perf_counter())
    return first_step_s - datetime.fromisoformat(started[1]).timestamp()
