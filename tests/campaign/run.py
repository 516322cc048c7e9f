"""One seed of a campaign: the experiment, disturbed as its plan says, run again and again with the same command."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import Checkout, small_config, small_experiment

from campaign.checks import Ended, differences, half_written, orphans, remains
from campaign.injector import arming, damage, free_the_disk, may_mount, small_disk, strike
from campaign.plan import AT_ANY_TIME, Damage, Fault, plan_of
from dpscale.errors import UserError

EXPERIMENT, TRIALS = "campaign", 12
TRAIN_SAMPLES, BATCH, EPOCHS = 192, 32, 4  # over all ranks
TIMEOUT_S = 600.0  # of one command; two of them beside six others on two cores take minutes
DISK = "64m"


def configuration() -> dict[str, Any]:
    """Twelve trials of seconds under several strategies, launchers and numbers of ranks, saved after each epoch."""
    two: dict[str, Any] = {"topologies": ["1x2"]}
    experiment = small_experiment(
        strategies={
            "single": {"topologies": ["1x1"]},
            "ddp": {**two, "launchers": ["spawn", "torchrun"]},
            "allreduce": two,
            "zero": two,
            "local_sgd": {**two, "period": 3},
        },
        batch={"global": BATCH},
        epochs=EPOCHS,
        repeats=2,
        checkpoint_interval_s=0,
        timeout_s=TIMEOUT_S / 2,
    )
    return small_config(experiment, EXPERIMENT)


def command() -> list[str]:
    return ["make", "run", "-o", ".venv/run-ready", f"BIN={Path(sys.executable).parent}", "ARGS=tables"]


@dataclass(frozen=True)
class Undisturbed:
    """What the experiment comes to if nobody disturbs it, and how long that takes."""

    ended: Ended
    wall_s: float

    @property
    def trial_s(self) -> float:
        return self.wall_s / TRIALS


def undisturbed(folder: Path) -> Undisturbed:
    """Run it once, as everybody does."""
    checkout = Checkout.fresh(folder / "dpscale", configuration())
    begin = time.monotonic()
    returncode = _run(checkout, None, folder / "faults", folder / "make.log", 0.0)[0]
    assert returncode == 0, (folder / "make.log").read_text()
    found = Undisturbed(Ended.of(checkout.results()), time.monotonic() - begin)
    assert len(found.ended.trials) == TRIALS
    return found


@dataclass
class Round:
    """One time that the command was run."""

    fault: str | None
    struck: str | None  # where or whom; None: it was over before
    damages: list[str]
    returncode: int | None  # None: it did not end
    wall_s: float


@dataclass
class Outcome:
    seed: int
    rounds: list[Round] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    wall_s: float = 0.0


def run_seed(seed: int, folder: Path, expected: Undisturbed) -> Outcome:
    """Everything that a seed has in store, and what is wrong in the end."""
    plan = plan_of(seed, may_mount(), EPOCHS * (TRAIN_SAMPLES // BATCH))
    disk: AbstractContextManager[Any] = small_disk(folder, DISK) if may_mount() else nullcontext()
    logs = folder.with_name(f"{folder.name}-logs")  # on a disk that nobody fills
    logs.mkdir(parents=True)
    with disk:
        checkout = Checkout.fresh(folder / "dpscale", configuration())
        outcome = Outcome(seed)
        begin = time.monotonic()
        try:
            for number, fault in enumerate([*plan.faults, None]):
                damages = [planned for planned in plan.damages if planned.round == number]
                found, wrong = _round(checkout, fault, damages, logs / f"round-{number}", expected.trial_s)
                outcome.rounds.append(found)
                outcome.problems += [
                    f"round {number}, {fault.kind if fault else 'undisturbed'}: {text}" for text in wrong
                ]
            outcome.problems += _wrong_in_the_end(checkout, outcome.rounds[-1], expected)
        finally:
            checkout.end()
        outcome.wall_s = time.monotonic() - begin
    return outcome


def _round(
    checkout: Checkout, fault: Fault | None, damages: list[Damage], logs: Path, trial_s: float
) -> tuple[Round, list[str]]:
    """Damage, and the command with its fault; and what is wrong afterwards."""
    done = [f"{planned.kind}: {found}" for planned in damages if (found := damage(planned, checkout)) is not None]
    begin, begin_ns = time.monotonic(), time.time_ns()
    returncode, struck = _run(checkout, fault, logs, logs.with_suffix(".log"), trial_s)
    wrong = [] if returncode is not None else [f"not over after {TIMEOUT_S:g} s"]
    wrong += orphans(checkout)
    checkout.end()
    free_the_disk(checkout.root)
    wrong += half_written(checkout.results(), begin_ns)
    return Round(fault.kind if fault else None, struck, done, returncode, time.monotonic() - begin), wrong


def _wrong_in_the_end(checkout: Checkout, last: Round, expected: Undisturbed) -> list[str]:
    """After the round that nobody disturbed."""
    if last.returncode != 0:
        return [f"the undisturbed round ended with {last.returncode}"]
    try:
        return remains(checkout) + differences(expected.ended, Ended.of(checkout.results()))
    except UserError as error:
        return [str(error)]


def _run(
    checkout: Checkout, fault: Fault | None, faults: Path, log: Path, trial_s: float
) -> tuple[int | None, str | None]:
    """The command, from start to end, with this fault; (its exit code, where the fault has struck)."""
    environment = checkout.environment(PYTHONDONTWRITEBYTECODE="", **arming(fault, faults, checkout.root))
    with log.open("w") as output:
        process = subprocess.Popen(
            command(),
            cwd=checkout.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        struck = None
        if fault is not None and fault.kind in AT_ANY_TIME:
            try:
                process.wait(fault.after_trials * trial_s)
            except subprocess.TimeoutExpired:
                struck = strike(fault, checkout)
        try:
            returncode: int | None = process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            returncode = None
            checkout.end()
            process.wait()
    if (faults / "struck").exists():
        struck = (faults / "struck").read_text()
    return returncode, struck
