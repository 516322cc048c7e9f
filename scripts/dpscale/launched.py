"""What decides where ranks run and for how long: the same for a trial and for a run of collectives.

Each is a frozen dataclass whose fields travel as a command line: `to_args` and `from_args`. Importable without torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Self, get_args, get_type_hints

Options = dict[str, Any]
Names = list[str]
Sizes = list[int]
# type of a field -> how its text on a command line is read
PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    str | None: str,
    int: int,
    int | None: int,
    float: float,
    float | None: float,
    bool: json.loads,
    Options: json.loads,
    Names: json.loads,
    Sizes: json.loads,
}


@dataclass(frozen=True, order=True)
class Topology:
    """nodes x devices_per_node. N, the number of devices, is their product."""

    nodes: int
    devices_per_node: int

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices_per_node}"

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Raises ValueError: not two counts, below 100,000, with an x between them."""
        match = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", text)
        if match is None:
            raise ValueError(f"{text!r} is no topology; write nodes x devices_per_node, such as 1x1 or 2x4")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, kw_only=True)
class Launched:
    """One launch of ranks, whatever they do."""

    experiment: str
    launcher: str
    nodes: int
    devices_per_node: int
    world_size: int  # processes: the number of devices, or 1 for a single-process strategy
    device: str
    backend: str
    threads_per_rank: int
    # Limits end a launch that is stuck and decide nothing of one that ends well: raising them measures nothing again.
    timeout_s: float = dataclasses.field(compare=False)
    collective_timeout_s: float = dataclasses.field(compare=False)

    @property
    def topology(self) -> Topology:
        return Topology(self.nodes, self.devices_per_node)

    @property
    def devices(self) -> int:
        return self.topology.devices

    @property
    def ranks_per_node(self) -> int:
        return self.world_size // self.nodes

    @property
    def cores_per_rank(self) -> int:
        """CPUs that a rank keeps busy."""
        return self.threads_per_rank

    @property
    def folder(self) -> PurePosixPath:
        """Where its files lie, below results_dir."""
        raise NotImplementedError

    @property
    def id(self) -> str:
        raise NotImplementedError

    def to_args(self) -> list[str]:
        """Command line of it; a field that is None is left out. `from_args` is its inverse."""
        return [*self.deciding_args(), *self.limit_args()]

    def deciding_args(self) -> list[str]:
        """Those of the fields that decide the measurement."""
        return self._args(deciding=True)

    def limit_args(self) -> list[str]:
        """Those of its limits."""
        return self._args(deciding=False)

    def _args(self, deciding: bool) -> list[str]:
        arguments = []
        kind: type = type(self)
        for name, flag in _flags(kind, deciding):
            value = getattr(self, name)
            if value is not None:
                text = json.dumps(value, sort_keys=True) if isinstance(value, dict | list | bool) else str(value)
                arguments.append(f"{flag}={text}")
        return arguments

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("what is launched")
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            hint = hints[field.name]
            parse = PARSERS[hint]
            group.add_argument(_flag(field.name), type=parse, required=type(None) not in get_args(hint))

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Self:
        return cls(**{field.name: getattr(args, field.name) for field in dataclasses.fields(cls)})


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@cache
def _flags(kind: type, deciding: bool) -> list[tuple[str, str]]:
    """(field, its flag) of the fields that decide the measurement, or of the limits."""
    return [(field.name, _flag(field.name)) for field in dataclasses.fields(kind) if field.compare == deciding]
