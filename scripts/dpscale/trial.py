"""One trial: everything that decides a single measurement. Importable without torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from dpscale.launched import Launched, Options

PLACEBO = "placebo"  # the strategy's name of trials that measure a cell again
LARGEST = "largest"  # batch.per_device, and scaling, of trials whose batch is what fits
WHICH = {"strategy", "explain", "repeat", "seed"}  # fields that say which training of a configuration one is, ...
WHERE = {"launcher", "nodes", "devices_per_node", "world_size", "batch_size_per_device"}  # ... and where it runs


@dataclass(frozen=True, kw_only=True)
class Trial(Launched):
    """One launch of one strategy on one topology, measured once. Fields are checked where they are planned."""

    strategy: str  # the variant's name, as the tables show it
    base: str  # the row of STRATEGIES behind it
    options: Options  # of that row
    repeat: int  # 0-based
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
    loader_workers: int
    monitor_interval_s: float | None  # from one sample of the monitor to the next; None = no monitor
    seed: int  # of this repeat
    # How often it is saved; None = never: a limit as those of every launch. A checkpoint is in no timing.
    checkpoint_interval_s: float | None = dataclasses.field(compare=False)

    @property
    def cores_per_rank(self) -> int:
        return self.threads_per_rank + self.loader_workers

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
    def configuration(self) -> str:
        """Digest of what is trained, and how: alike on all topologies, for repeats, and for variants that differ in nothing but
        their name and `explain`. Limits decide nothing of it."""
        deciding = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.compare and field.name not in WHICH | WHERE
        }
        batch = self.global_batch_size if self.scaling == "strong" else self.planned.batch_size_per_device
        text = json.dumps({**deciding, "batch": batch}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

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
