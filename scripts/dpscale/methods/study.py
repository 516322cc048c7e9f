"""What is known of one experiment: its settings, its plan, what was found, and in what its machines and launches agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dpscale.config import ExperimentConfig
from dpscale.record import Record
from dpscale.trial import Trial
from dpscale.workloads.prepared import Manifest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Table:
    """Rows of texts under a header."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True)
class Section:
    """A heading, sentences that make one paragraph each list, and tables below them."""

    title: str
    paragraphs: list[list[str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not any(self.paragraphs) and not any(table.rows for table in self.tables)


@dataclass(frozen=True, kw_only=True)
class Study:
    """One experiment."""

    name: str
    settings: ExperimentConfig
    trials: Sequence[Trial]  # as planned
    records: Sequence[Record]  # what there is of them
    tables: Mapping[str, pd.DataFrame]  # by name
    manifest: Manifest | None = None  # of the prepared dataset, where it is there
    for_prediction: Sequence[tuple[Trial, Record | None]] = ()  # more trials, of other batches, which are in no table

    @property
    def trial(self) -> Trial:
        """One of them, for what all have in common."""
        return self.trials[0]

    @cached_property
    def measured(self) -> list[Record]:
        return [record for record in self.records if record.status == "ok"]

    @cached_property
    def measured_for_prediction(self) -> list[Record]:
        return [record for _, record in self.for_prediction if record is not None and record.status == "ok"]

    @cached_property
    def machines(self) -> list[dict[str, Any]]:
        """Of all measured launches, each node's."""
        return [machine for record in self.measured for machine in _machines_of(record)]

    def facts(self, name: str) -> list[Any]:
        """The different values of a fact of the machines that tell it."""
        return different(machine.get(name) for machine in self.machines)

    def of_trials(self, name: str) -> list[Any]:
        """The different values of a field of the planned trials."""
        return different(getattr(trial, name) for trial in self.trials)


def nodes_of(record: Record) -> list[str]:
    """Names of the nodes that a launch ran on."""
    return [machine["node"] for machine in _machines_of(record)]


def _machines_of(record: Record) -> list[dict[str, Any]]:
    return record.nodes or [record.environment]


def different(values: Iterable[Any]) -> list[Any]:
    """Each once, without those that are none."""
    found: list[Any] = []
    for value in values:
        if value is not None and value not in found:
            found.append(value)
    return found


def number(value: float) -> str:
    """Without digits that say nothing."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def options_text(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in options.items() if value is not None)
