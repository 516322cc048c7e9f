"""What one piece of advice is: a sentence with its reason and the next step, and the rows that it follows from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpscale.statistics import Estimate

SHOWN, PARTLY, WITHHELD = "shown", "partly shown", "withheld"


@dataclass(frozen=True)
class Evidence:
    """Columns of rows of a table, or of another file of the experiment."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]  # names of cells

    def __str__(self) -> str:
        return f"{self.file}: {', '.join(self.columns)} of {', '.join(self.rows)}"


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """One answer. What is withheld says in `missing` which measurement or setting would decide it."""

    about: str  # a key of QUESTIONS
    support: str
    verdict: str
    why: str = ""
    next_steps: tuple[str, ...] = ()
    missing: str = ""
    cell: str = ""
    estimate: Estimate | None = None
    unit: str = ""
    follows_from: Sequence[Evidence] = ()
    warnings: tuple[str, ...] = ()


QUESTIONS = {
    "in_short": "In short",
    "fastest": "What trains fastest?",
    "efficiency": "On how many devices at most?",
    "device_hours": "What takes the least device time?",
    "money": "What costs the least money?",
    "energy": "What takes the least energy?",
    "peak": "What share of the devices' peak is reached?",
    "cause": "What limits it?",
    "prediction": "What would more devices bring?",
}
