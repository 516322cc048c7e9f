"""From launch.py to the first timed step of 2 ranks, beyond what a fresh interpreter takes to import torch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from common import Comparison, Settings, launch, plan_one, prepare, run_python

from dpscale.record import Record
from dpscale.trial import Trial

GOAL_S = 3.0


def run(settings: Settings) -> Iterator[Comparison]:
    data = prepare("digits", settings.folder)
    trial = plan_one(
        strategies={"ddp": {}},
        topologies=["1x2"],
        launchers=["spawn"],
        batch={"per_device": 32},
        steps=2,
        warmup_steps=1,
        evaluate=False,
    )
    pairs = []
    for number in range(settings.pairs):
        ours_s = first_timed_step_s(trial, data, settings.folder / f"startup-{number}")
        pairs.append((ours_s, import_torch_s()))
    yield Comparison(
        name="launch.py to the first timed step, 2 ranks by spawn, minus `import torch`",
        first="launch.py to the first timed step, s",
        second="a fresh interpreter that imports torch, s",
        pairs=pairs,
        says="first - second",
        unit="s",
        goal=GOAL_S,
        goal_is="at most",
        facts={"trial": trial.id, "warmup_steps": trial.warmup_steps},
    )


def first_timed_step_s(trial: Trial, data: Path, folder: Path) -> float:
    """Until the last rank begins it. perf_counter has one origin for all processes of a machine."""
    started_s = time.perf_counter()
    (segment,) = Record.read(launch(trial, data, folder)).timed_segments
    return max(start for start, _ in segment.windows_s) - started_s


def import_torch_s() -> float:
    started_s = time.perf_counter()
    run_python(["-c", "import torch"])
    return time.perf_counter() - started_s
