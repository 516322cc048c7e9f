"""Predictions as they were made, and what was measured of them: one file that only grows, so that neither can be told otherwise.

A line is a prediction of one topology of one strategy under one launcher, or a launch that was measured of one that stands
there. A prediction is written once for the same code, inputs and setting: running again adds nothing, and what is measured later
changes nothing. Each line ends with a digest of itself and of all before it. What was cut off its end is missed by files that name
the last line that there was: predictions by calibration.json, launches by the table `prediction`.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from dpscale.errors import Damaged, UserError
from dpscale.files import is_as_made, refuse_changed, write_sealed
from dpscale.forecasting.calibration_file import FILE, last_line_of
from dpscale.record import RECORD

LEDGER = "ledger.jsonl"
DIGEST = "digest"  # key of a line
TABLE = Path("tables", "prediction.csv")  # of the experiment: what the ledger comes to
LAST_LINE = "ledger_last_line"  # column of that table
PREDICTION, LAUNCH = "prediction", "launch"  # kinds of lines; one without is a prediction of before there were any
REMEDY = f"put the file back as it was, or move it and {FILE} away to begin anew: what is measured by then is predicted afterwards"


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
    configuration: str | None  # Trial.configuration of what it is about; None: written before this was kept
    setting: dict[str, Any]  # samples, batch, scaling and the rest of prediction.py's Setting
    calibrated_up_to: int  # devices
    epoch_time_s: float
    intervals: dict[str, Interval]  # percent -> within which one launch should be
    scaling_efficiency: float  # X(N) / (N X(1)), both predicted
    steps: float
    parts: dict[str, float]
    epoch_fixed_s: float
    limited_by: str
    baselines: dict[str, float]  # law -> epoch time by it, in s, from the same launches
    limited_by_share: float | None = None  # None: nothing limits it, or it is of before this was kept

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node

    @property
    def calibrating(self) -> bool:
        """Whether trials of its topology are among those that it was made from: then it predicts nothing."""
        place = f"{self.nodes}x{self.devices_per_node}"
        records = [PurePosixPath(path) for path in self.inputs if path.endswith(f"/{RECORD}")]
        return any(place == path.parts[-3] for path in records)

    @property
    def cell(self) -> tuple[str, str, int, int]:
        return self.strategy, self.launcher, self.nodes, self.devices_per_node

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
            "configuration",
            "setting",
            "calibrated_up_to",
        )
        text = json.dumps({name: getattr(self, name) for name in deciding}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One that was measured of what is predicted."""

    started_at: str  # UTC
    configuration: str  # Trial.configuration
    strategy: str
    launcher: str
    nodes: int
    devices_per_node: int
    repeat: int
    epoch_time_s: float = field(compare=False)  # whoever tells of the same launch again tells nothing new

    def is_of(self, entry: Entry) -> bool:
        """Variants that are trained alike have one configuration."""
        mine = (self.configuration, self.launcher, self.nodes, self.devices_per_node)
        return mine == (entry.configuration, entry.launcher, entry.nodes, entry.devices_per_node)

    def began_after(self, entry: Entry) -> bool:
        return datetime.fromisoformat(self.started_at) >= datetime.fromisoformat(entry.predicted_at)


@dataclass(frozen=True)
class Ledger:
    """What is written there, in the order of writing."""

    predictions: Sequence[Entry] = ()
    launches: Sequence[Launch] = ()
    digests: Sequence[str] = ()  # of its lines, but for those of before they had one

    def held_against(self, entry: Entry) -> list[Launch]:
        """What a prediction is judged by: of each repeat the first launch that began after it was written. Where there is none,
        of each the last before: what it was made from, or what makes it a prediction after the fact.

        So a verdict by launches that came later stays, whatever is measured again.
        """
        mine = sorted((launch for launch in self.launches if launch.is_of(entry)), key=lambda launch: launch.started_at)
        later = [launch for launch in mine if launch.began_after(entry) and not entry.calibrating]
        chosen = reversed(later) if later else (launch for launch in mine if not launch.began_after(entry))
        return list({(launch.strategy, launch.repeat): launch for launch in chosen}.values())


def read_ledger(path: Path) -> Ledger:
    """An empty one where nothing was predicted yet.

    Raises:
        UserError: a line is none of a ledger, or the file is not as it was written.
    """
    refuse_changed(path, REMEDY)
    predictions: list[Entry] = []
    launches: list[Launch] = []
    digests: list[str] = []
    content = path.read_bytes() if path.exists() else b""
    before = hashlib.sha256()
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            data = json.loads(line)
            digest = data.pop(DIGEST, None)
            as_written = digest == _digest(before, data) if digest or digests else True
            if data.pop("kind", PREDICTION) == LAUNCH:
                launches.append(Launch(**data))
            else:
                predictions.append(_entry(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}: line {number} is no prediction ({type(error).__name__}: {error}); {REMEDY}"
            ) from None
        if not as_written:
            raise Damaged(f"{path}: line {number}, or one before it, is not as it was written; {REMEDY}")
        digests += [digest] if digest else []
        before.update(line)
    return Ledger(predictions, launches, digests)


def _entry(data: dict[str, Any]) -> Entry:
    data.pop("measured_before", None)  # of lines that do not say of which configuration: it was of any
    intervals = {percent: Interval(**ends) for percent, ends in data["intervals"].items()}
    return Entry(**{"configuration": None, **data, "intervals": intervals})


def _digest(before: Any, data: dict[str, Any]) -> str:
    """Of a line, and of all before it, which `before` has hashed."""
    hashed = before.copy()
    hashed.update(json.dumps(data, allow_nan=False).encode())
    text: str = hashed.hexdigest()
    return text


def refuse_lost(folder: Path) -> None:
    """Raises UserError: the folder's ledger is not there, lacks lines, or is not as it was written."""
    path, calibration, table = folder / LEDGER, folder / FILE, folder.parent / TABLE
    ledger = read_ledger(path)
    if calibration.exists() and not path.exists():
        raise UserError(f"{path}: missing, though {FILE} beside it was written after it; {REMEDY}")
    last_lines = {f"{FILE} beside it": last_line_of(calibration) if calibration.exists() else None}
    last_lines[str(table)] = _last_line_by(table, ledger)
    for witness, last in last_lines.items():
        if last is not None and last not in ledger.digests:
            raise UserError(f"{path}: a line that {witness} was written after is missing; {REMEDY}")


def _last_line_by(table: Path, ledger: Ledger) -> str | None:
    """The digest of the last line when the table was made. None without any; in a table that is itself damaged, which whoever
    reads it says; and in one of another ledger, after which this one was begun anew."""
    if not table.exists() or not is_as_made(table):
        return None
    with table.open(newline="", encoding="utf-8") as file:
        row = next(csv.DictReader(file), {})
    same = row.get("predicted_at") in {entry.predicted_at for entry in ledger.predictions}
    return (row.get(LAST_LINE) or None) if same else None


def append_predictions(path: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Add those that are not the latest of their cell; returns them. What is there stays as it is, byte for byte."""
    latest = {entry.cell: entry.identity for entry in read_ledger(path).predictions}
    new = [entry for entry in entries if latest.get(entry.cell) != entry.identity]
    _append(path, [{"kind": PREDICTION, **asdict(entry)} for entry in new])
    return new


def append_launches(path: Path, launches: Sequence[Launch]) -> Ledger:
    """Add those that are of a prediction, unless they are there; returns all that is there then."""
    ledger = read_ledger(path)
    new = [
        launch
        for launch in launches
        if launch not in ledger.launches and any(launch.is_of(entry) for entry in ledger.predictions)
    ]
    _append(path, [{"kind": LAUNCH, **asdict(launch)} for launch in new])
    return read_ledger(path)


def _append(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    if not lines:
        return
    content = path.read_bytes() if path.exists() else b""
    hashed = hashlib.sha256(content)
    for data in lines:
        line = f"{json.dumps({**data, DIGEST: _digest(hashed, data)}, allow_nan=False)}\n".encode()
        hashed.update(line)
        content += line
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(path, content)
