"""What every bench shares: its settings, what it hands back, and the project's own trials and data to measure on."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "scripts"
SOURCE = Path("/usr/share/datasets/fashion-mnist")  # as in config.yaml; Debian: dataset-fashion-mnist
sys.path.insert(0, str(SCRIPTS))

from dpscale.config import load_config  # noqa: E402 - the path above first
from dpscale.planning.plan import plan_trials  # noqa: E402
from dpscale.trial import Trial  # noqa: E402


class NotHere(Exception):
    """What a bench needs is not on this machine: it is not run, and the text says why."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured, and where files may be made."""

    pairs: int
    steps: int  # of one side of a pair of the loop bench
    samples: int  # per epoch of the textbook bench and of the loaders'
    trials: int  # of the dry run
    learns_from: int  # training samples of the accuracy bench
    folder: Path  # for everything that is made; gone afterwards


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Interleaved pairs of two figures, and the goal for what they say together."""

    name: str
    first: str  # what the pair's first figure is, with its unit
    second: str
    pairs: list[tuple[float, float]]  # in the order of measurement: first second first second ...
    says: Literal["first / second", "first - second"] = "first / second"
    unit: str = ""  # of the difference
    goal: float
    goal_is: Literal["at least", "at most"]
    facts: Mapping[str, Any] = field(default_factory=dict)  # whatever else a reader of the raw file needs

    @property
    def values(self) -> list[float]:
        if self.says == "first / second":
            return [first / second for first, second in self.pairs]
        return [first - second for first, second in self.pairs]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        return self.median >= self.goal if self.goal_is == "at least" else self.median <= self.goal

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "values": self.values, "median": self.median, "met": self.met}


def plan_one(**experiment: Any) -> Trial:
    """The first trial of an experiment, planned as a config.yaml with these keys would be."""
    sources = {"fashion_mnist": {"source": "any"}, "image_folder": {"source": "any"}}
    datasets = {**sources, **experiment.pop("datasets", {})}
    data = {"datasets": datasets, "experiments": {"bench_trials": experiment}}
    return plan_trials(load_config(data, "bench"), "bench")["bench_trials"][0]


def prepare(dataset: str, folder: Path, **settings: Any) -> Path:
    """The folder of a dataset, made by the project's own prepare.py unless it is there."""
    out = folder / dataset
    if not out.exists():
        command = [SCRIPTS / "prepare.py", dataset, f"--settings={json.dumps(settings)}", f"--out={out}"]
        run_python(command)
    return out


def run_python(arguments: list[Any], **options: Any) -> str:
    """Run a fresh interpreter to its end; what it printed, or, if it fails, an error that shows its output.

    Raises:
        RuntimeError: it failed.
    """
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-4000:]
        raise RuntimeError(f"{' '.join(command)}\nended with exit code {done.returncode}:\n{output}")
    return done.stdout


def launch(trial: Trial, data: Path, folder: Path) -> Path:
    """Measure a trial as the pipeline does, through launch.py; the path of its record."""
    arguments = [f"--data={data}", f"--folder={folder}", f"--log={folder / 'trial.log'}", *trial.to_args()]
    run_python([SCRIPTS / "launch.py", *arguments])
    return folder / "record.json"
