"""Predictions as they were made: one file that only grows, so that what came true later can't be told otherwise.

A line is one topology of one strategy under one launcher. It is written once for the same code, inputs and setting: running
again adds nothing, and what is measured later changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpscale.errors import UserError
from dpscale.files import refuse_changed, write_sealed

LEDGER = "ledger.jsonl"


@dataclass(frozen=True, kw_only=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One prediction. Times are of the whole epoch, those of parts of one step, in s."""

    predicted_at: str  # UTC
    code: str  # digest of the predicting code
    inputs: dict[str, str]  # files that it was calibrated from, below the results folder -> sha256
    strategy: str
    same: list[str]  # it, and variants that are trained alike
    base: str
    launcher: str
    nodes: int
    devices_per_node: int
    setting: dict[str, Any]  # samples, batch, scaling and the rest of prediction.py's Setting
    calibrated_up_to: int  # devices
    measured_before: bool  # a launch of it was there already: no prediction, but a check of the model
    epoch_time_s: float
    intervals: dict[str, Interval]  # percent -> within which one launch should be
    scaling_efficiency: float  # X(N) / (N X(1)), both predicted
    steps: float
    parts: dict[str, float]
    epoch_fixed_s: float
    limited_by: str
    baselines: dict[str, float]  # law -> epoch time by it, in s, from the same launches

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def identity(self) -> str:
        """Digest of what decides it: with the same one it is the same prediction."""
        deciding = (
            "code",
            "inputs",
            "strategy",
            "launcher",
            "nodes",
            "devices_per_node",
            "setting",
            "calibrated_up_to",
        )
        text = json.dumps({name: getattr(self, name) for name in deciding}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_ledger(path: Path) -> list[Entry]:
    """In the order of writing; none where nothing was predicted yet.

    Raises:
        UserError: a line is not a prediction, or the file is not as it was written.
    """
    remedy = "put the file back as it was, or move it away to begin anew"
    refuse_changed(path, remedy)
    entries: list[Entry] = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], start=1):
        try:
            data = json.loads(line)
            intervals = {percent: Interval(**ends) for percent, ends in data["intervals"].items()}
            entries.append(Entry(**{**data, "intervals": intervals}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: line {number} is no prediction ({type(error).__name__}: {error}); {remedy}"
            ) from None
    return entries


def append(path: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Add those that are not there; returns them. What is there stays as it is, byte for byte."""
    known = {entry.identity for entry in read_ledger(path)}
    new = [entry for entry in entries if entry.identity not in known]
    if new:
        before = path.read_bytes() if path.exists() else b""
        lines = "".join(f"{json.dumps(asdict(entry), allow_nan=False)}\n" for entry in new)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, before + lines.encode())
    return new
