"""A dry run of many trials against that of a minimal Snakefile with as many jobs: what our rules add to Snakemake."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml
from common import REPOSITORY, Comparison, Settings

GOAL = 2.0
TOPOLOGIES, LAUNCHERS = ["1x2", "1x3", "1x4", "1x6", "1x8"], ["spawn", "torchrun"]
MINIMAL = """\
rule all:
    input:
        expand("out/{{number}}.txt", number=range({jobs})),


rule job:
    output:
        "out/{{number}}.txt",
    shell:
        "touch {{output}}"
"""


def run(settings: Settings) -> Iterator[Comparison]:
    ours, minimal = settings.folder / "ours", settings.folder / "minimal"
    ours.mkdir()
    minimal.mkdir()
    config = many_trials(settings.trials)
    (ours / "config.yaml").write_text(yaml.safe_dump(config))
    (minimal / "Snakefile").write_text(MINIMAL.format(jobs=settings.trials))
    pairs = []
    for _ in range(settings.pairs):
        ours_s = dry_run_s(ours, REPOSITORY / "Snakefile", "trial", settings.trials)
        pairs.append((ours_s, dry_run_s(minimal, minimal / "Snakefile", "job", settings.trials)))
    yield Comparison(
        name=f"dry run of {settings.trials:,} trials / of a minimal Snakefile with as many jobs",
        first="ours, s",
        second="minimal, s",
        pairs=pairs,
        goal=GOAL,
        goal_is="at most",
        facts={"trials": settings.trials, "command": "snakemake -n --cores 2", "config": config},
    )


def many_trials(count: int) -> dict:
    """A config that plans so many trials in one experiment.

    Raises:
        ValueError: no product of variants, repeats, topologies and launchers.
    """
    cells = len(TOPOLOGIES) * len(LAUNCHERS)
    repeats = 10 if count >= 10 * cells else 1
    variants, left = divmod(count, cells * repeats)
    if left:
        raise ValueError(f"--trials {count}: choose a multiple of {cells * repeats}")
    experiment = {
        "strategies": {f"variant_{number}": {"base": "ddp"} for number in range(variants)},
        "topologies": TOPOLOGIES,
        "launchers": LAUNCHERS,
        "batch": {"per_device": 32},
        "epochs": 2,
        "repeats": repeats,
    }
    return {"experiments": {"many": experiment}}


def dry_run_s(folder: Path, snakefile: Path, rule: str, jobs: int) -> float:
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "2", "--snakefile", str(snakefile)]
    started_s = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    wall_time_s = time.perf_counter() - started_s
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} in {folder}:\n{(done.stdout + done.stderr)[-4000:]}")
    if not re.search(rf"^{rule} +{jobs}$", done.stdout + done.stderr, re.MULTILINE):
        raise RuntimeError(f"{' '.join(command)} in {folder} did not plan {jobs} jobs of rule {rule}")
    return wall_time_s
