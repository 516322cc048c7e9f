"""The attempts at one measurement until it has its record, and with them a trial's checkpoints."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dpscale.files import write_atomically
from dpscale.launched import Launched
from dpscale.trial import Trial

FOLDER = ".checkpoints"  # beside the record; no output of a rule, for Snakemake deletes those before it tries again
FILE = "attempts.json"
UNKNOWN = "killed, or the machine went down"


def identity_of(launched: Launched, *also: str) -> str:
    """What an attempt must be of to be gone on with: the same in all that decides the measurement, its code and data among
    it."""
    return hashlib.sha256("\0".join([*launched.deciding_args(), *also]).encode()).hexdigest()


class History:
    """Of one measurement, code and data: what is there of another is deleted, and named."""

    def __init__(self, folder: Path, identity: str) -> None:
        self.folder, self.identity = folder, identity
        self.attempts: list[dict[str, Any]] = []

    def begin(self) -> str | None:
        """Put down that an attempt begins; returns what there is to say of what was found."""
        said = None
        if self.folder.exists():
            try:
                found = json.loads((self.folder / FILE).read_text())
                if found["identity"] == self.identity:
                    self.attempts = found["attempts"]
                else:
                    said = f"{self.folder}: of another configuration, code or data: deleted"
            except (OSError, ValueError, KeyError, TypeError):
                said = f"{self.folder}: no whole history of attempts: deleted"
            if said is not None:
                shutil.rmtree(self.folder)
        for attempt in self.attempts:
            attempt["how"] = attempt["how"] or UNKNOWN
        self.attempts.append({"started_at": _now(), "host": socket.gethostname(), "ended_at": None, "how": None})
        self._write()
        return said

    def end(self, how: str) -> None:
        """Put down how the attempt ended."""
        self.attempts[-1] |= {"ended_at": _now(), "how": how}
        self._write()

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {"identity": self.identity, "attempts": self.attempts}
        write_atomically(self.folder / FILE, json.dumps(content, indent=1).encode())

    def clear(self) -> None:
        """Once there is a record, which lists the attempts."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def arguments(self, trial: Trial) -> list[str]:
        """Of train.py: where checkpoints are. A trial of so many steps is over in minutes, and has none."""
        if trial.epochs is None or trial.checkpoint_interval_s is None:
            return []
        return [f"--checkpoints={self.folder}", f"--identity={self.identity}"]


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
