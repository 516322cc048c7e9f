"""One trial: everything that decides a single measurement. Importable without torch."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any, get_args, get_type_hints

Options = dict[str, Any]
LARGEST = "largest"  # batch.per_device, and scaling, of trials whose batch is what fits
# type of a field -> how its text on a command line is read
PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    int | None: int,
    float: float,
    float | None: float,
    bool: json.loads,
    Options: json.loads,
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
        """Raises ValueError: not two counts with an x between them."""
        match = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)", text)
        if match is None:
            raise ValueError(f"{text!r} is no topology; write nodes x devices_per_node, such as 1x1 or 2x4")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One launch of one strategy on one topology, measured once. Fields are checked where they are planned."""

    experiment: str
    strategy: str  # the variant's name, as the tables show it
    base: str  # the row of STRATEGIES behind it
    options: Options  # of that row
    launcher: str
    nodes: int
    devices_per_node: int
    world_size: int  # processes: the number of devices, or 1 for a single-process strategy
    repeat: int  # 0-based
    device: str
    backend: str
    precision: str
    compile: bool
    channels_last: bool
    model: str
    model_options: Options
    dataset: str
    train_samples: int | None  # the first so many; None = all
    test_samples: int | None
    optimizer: Options  # name, lr and the rest of the config's optimizer
    scaling: str  # "weak": the batch per device is fixed; "strong": the global batch is; "largest": what fits
    batch_size_per_device: int | None  # None: not known before the search for the largest
    headroom_percent: float | None  # of "largest": how far the batch stays below what fits
    epochs: int | None  # whole epochs, warm-up included ...
    warmup_epochs: int | None
    steps: int | None  # ... or steps
    warmup_steps: int | None
    evaluate: bool
    explain: bool  # blocks of steps under controls after the training
    threads_per_rank: int
    loader_workers: int
    seed: int  # of this repeat
    # Limits end a trial that is stuck and decide nothing of one that ends well: raising them measures nothing again.
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
    def search_timeout_s(self) -> float:
        """How long the search for the largest batch may take: its launches are short, but many."""
        return 4 * self.timeout_s

    @property
    def planned(self) -> Trial:
        """As the plan has it, which knows no batch that a search found."""
        return dataclasses.replace(self, batch_size_per_device=None) if self.scaling == LARGEST else self

    @property
    def global_batch_size(self) -> int | None:
        """Samples per optimiser step, summed over devices; None before they are known."""
        return None if self.batch_size_per_device is None else self.batch_size_per_device * self.devices

    @property
    def learning_rate(self) -> float | None:
        """The highest of the training: scaled with the global batch where the config gives a batch that lr is meant for
        (linear scaling; Goyal et al., "Accurate, large minibatch SGD", 2017). None before the batch is known."""
        lr: float = self.optimizer["lr"]
        reference = self.optimizer.get("lr_reference_batch")
        if reference is None:
            return lr
        return None if self.global_batch_size is None else lr * self.global_batch_size / reference

    @property
    def batch_size_per_rank(self) -> int:
        """Samples that one process loads per step: nn.DataParallel's one process feeds all devices."""
        assert self.global_batch_size is not None, f"{self.id} has no batch yet"
        return self.global_batch_size // self.world_size

    @property
    def cell(self) -> str:
        """strategy/launcher/topology: what repeats have in common."""
        return f"{self.strategy}/{self.launcher}/{self.topology}"

    @property
    def id(self) -> str:
        return f"{self.experiment}/{self.cell}/r{self.repeat}"

    @property
    def folder(self) -> PurePosixPath:
        """Where its files lie, below results_dir."""
        return PurePosixPath(
            self.experiment, "trials", self.strategy, self.launcher, str(self.topology), f"r{self.repeat}"
        )

    @property
    def search_folder(self) -> PurePosixPath:
        """Where the search for its cell's largest batch lies, below results_dir."""
        return PurePosixPath(self.experiment, "largest", self.cell)

    def to_args(self) -> list[str]:
        """Command line of this trial; a field that is None is left out. `from_args` is its inverse."""
        return [*self.deciding_args(), *self.limit_args()]

    def deciding_args(self) -> list[str]:
        """Those of the fields that decide the measurement."""
        return self._args(deciding=True)

    def limit_args(self) -> list[str]:
        """Those of its limits."""
        return self._args(deciding=False)

    def _args(self, deciding: bool) -> list[str]:
        arguments = []
        for name, flag in _flags(deciding):
            value = getattr(self, name)
            if value is not None:
                text = json.dumps(value, sort_keys=True) if isinstance(value, dict | bool) else str(value)
                arguments.append(f"{flag}={text}")
        return arguments

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("the trial")
        hints = get_type_hints(cls)
        for field in dataclasses.fields(cls):
            hint = hints[field.name]
            parse = PARSERS[hint]
            group.add_argument(_flag(field.name), type=parse, required=type(None) not in get_args(hint))

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Trial:
        return cls(**{field.name: getattr(args, field.name) for field in dataclasses.fields(cls)})


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


@cache
def _flags(deciding: bool) -> list[tuple[str, str]]:
    """(field, its flag) of the fields that decide the measurement, or of the limits."""
    return [(field.name, _flag(field.name)) for field in dataclasses.fields(Trial) if field.compare == deciding]
