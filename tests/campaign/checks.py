"""What must hold after a round, and at the end of a campaign, in words; none is none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pipeline import Checkout

from dpscale.errors import UserError
from dpscale.record import MONITOR, RECORD, STEPS, Record, read_steps

DRAFTS = ".attempt"  # folder of files that have not their final names yet
TOLERANCE = 1e-6  # of losses, on a CPU
GRACE_S = 20.0  # until the kernel and a launch that ends in order are through


@dataclass(frozen=True)
class Ended:
    """What an experiment that has come to its end holds, of what must not depend on how it came there."""

    trials: dict[str, Any]  # trial -> its epochs and losses
    tables: dict[str, int]  # table -> rows, where these are no matter of time

    @classmethod
    def of(cls, results: Path) -> Ended:
        """Raises UserError: something there is not whole."""
        trials = {place: _learned(path) for place, path in _records(results)}
        tables = {
            path.stem: len(pd.read_csv(path))
            for path in sorted(results.glob("*/tables/*.csv"))
            if path.stem in ("timings", "summary", "losses", "evaluations", "startup", "records")
        }
        return cls(trials, tables)


def _records(results: Path) -> Iterator[tuple[str, Path]]:
    """Whatever is called a record, by its place; a draft, of which other files may have been put in place already, is none."""
    for path in sorted(results.rglob(RECORD)):
        if DRAFTS not in path.parts:
            yield str(path.parent.relative_to(results)), path


def _learned(path: Path) -> dict[str, Any]:
    record = Record.read(path)
    steps = read_steps(path).to_pandas().sort_values(["rank", "segment", "step"])
    return {
        "status": record.status,
        "epochs": [(segment.num_steps, sum(segment.samples)) for segment in record.segments],
        "correct": [segment.evaluation.correct if segment.evaluation else None for segment in record.segments],
        "evaluated": [segment.evaluation.loss if segment.evaluation else None for segment in record.segments],
        "losses": steps.loss.tolist(),
        "timed": len(record.timed_segments),
    }


def differences(expected: Ended, found: Ended) -> list[str]:
    """In what an experiment's end is not the undisturbed one's."""
    wrong = [f"{trial}: no record" for trial in sorted(expected.trials.keys() - found.trials.keys())]
    wrong += [
        f"{trial}: a record that nobody planned" for trial in sorted(found.trials.keys() - expected.trials.keys())
    ]
    for trial in sorted(expected.trials.keys() & found.trials.keys()):
        mine, theirs = found.trials[trial], expected.trials[trial]
        wrong += [
            f"{trial}: {name} {mine[name]} instead of {theirs[name]}"
            for name in ("status", "epochs", "correct")
            if mine[name] != theirs[name]
        ]
        wrong += [
            f"{trial}: {name} differ by up to {gap:.2g}"
            for name in ("losses", "evaluated")
            if (gap := _largest_gap(mine[name], theirs[name])) > TOLERANCE
        ]
        if mine["timed"] == 0:
            wrong.append(f"{trial}: no epoch is timed")
    if found.tables != expected.tables:
        wrong.append(f"tables have {found.tables} rows instead of {expected.tables}")
    return wrong


def _largest_gap(mine: list[float | None], theirs: list[float | None]) -> float:
    """Infinite where one has a value that the other has not."""
    if [value is None for value in mine] != [value is None for value in theirs]:
        return float("inf")
    pairs = [(a, b) for a, b in zip(mine, theirs, strict=True) if a is not None and b is not None]
    return max((abs(a - b) for a, b in pairs), default=0.0)


def half_written(results: Path, since_ns: int = 0) -> list[str]:
    """Files that have their final name, and are not whole.

    Args:
        since_ns: of the clock of files; what was there before, and damaged, is not this command's.
    """
    wrong = []
    for path in (path for _, path in _records(results)):
        if _written(since_ns, path, path.with_name(STEPS), path.with_name(MONITOR)):
            try:
                Record.read(path)
            except UserError as error:
                wrong.append(str(error))
    for path in results.rglob("attempts.json"):
        if _written(since_ns, path):
            try:
                json.loads(path.read_text())
            except ValueError as error:
                wrong.append(f"{path}: {error}")
    tables = results.glob("*/tables/*.csv")
    return wrong + [f"{path}: its last line has no end" for path in tables if not path.read_bytes().endswith(b"\n")]


def _written(since_ns: int, *paths: Path) -> bool:
    return any(path.exists() and path.stat().st_mtime_ns >= since_ns for path in paths)


def orphans(checkout: Checkout, grace_s: float = GRACE_S) -> list[str]:
    """Processes of a command that is over."""
    deadline = time.monotonic() + grace_s
    while (alive := checkout.processes()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return [f"process {process.pid} lives on: {_command(process)}" for process in alive]


def remains(checkout: Checkout) -> list[str]:
    """What an experiment that has come to its end must not hold: locks, drafts, checkpoints."""
    found = [*(checkout.root / ".snakemake/locks").glob("*"), *(checkout.root / ".snakemake/holders").glob("*")]
    found += [*checkout.results().rglob(DRAFTS), *checkout.results().rglob(".checkpoints")]
    found += checkout.results().glob("*/tables/*.partial")
    return [f"{path.relative_to(checkout.root)} is left" for path in sorted(found)]


def _command(process: Any) -> str:
    try:
        return " ".join(process.cmdline())
    except Exception as error:  # noqa: BLE001 - gone meanwhile, or not ours to ask
        return type(error).__name__
