"""The largest batch per device that fits: how it is searched for, what the search leaves, and how a trial takes it up.

A search belongs to a cell: its repeats train with the same batch. It tries batch sizes in launches of their own, since
an allocator that failed once does not start anew, and it looks at what decides memory only: see `probe_of`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from dpscale.errors import Damaged, UserError
from dpscale.files import write_atomically
from dpscale.trial import LARGEST, Trial

FORMAT_VERSION = 1
FILE = "largest.json"
FIRST_TRY = 32  # samples per device
PRECISION_PERCENT = 1.0  # of the batch that is found: the next larger one that was tried and failed is this near
STEPS, WARMUP_STEPS = 4, 1  # of a try: the second has the optimiser's whole state, the others the allocator's habits


class NothingFits(UserError):
    """Not even the smallest batch fits into a device's memory."""


def largest_that_fits(
    fits: Callable[[int], bool], start: int, limit: int, precision_percent: float = 0.0, multiple_of: int = 1
) -> int:
    """The largest size up to `limit` for which `fits` is true, by doubling and then by halving what is in question.

    `fits` must be true up to some size and false beyond it. It is asked at most once about a size.

    Args:
        start: the first size to try.
        precision_percent: stop where the smallest size known not to fit is within so many percent of the one returned.
        multiple_of: try only multiples of this.

    Raises:
        NothingFits: `multiple_of` itself does not fit.
    """
    assert limit >= multiple_of
    good, bad = 0, limit // multiple_of + 1  # in multiples; nothing beyond the limit is tried
    size, failed = min(max(start // multiple_of, 1), bad - 1), False
    while bad - good > (max(1.0, good * precision_percent / 100) if failed else 1):
        if fits(size * multiple_of):
            good = size
        else:
            bad, failed = size, True
        size = (good + bad) // 2 if failed else min(2 * good, bad - 1)
    if good == 0:
        raise NothingFits(f"a batch of {multiple_of} per device does not fit into its memory")
    return good * multiple_of


def parts_of(trial: Trial) -> int:
    """What a batch must divide by: the parts that gradients are accumulated over."""
    parts: int = trial.options.get("accumulation_steps", 1)
    return parts


def probe_of(trial: Trial) -> Trial:
    """The trial that the search for a cell's batch starts, without its batch: the same for all repeats.

    How long a trial trains, from which seed and at which learning rates decides nothing of its memory.
    """
    return replace(
        trial,
        repeat=0,
        seed=0,
        batch_size_per_device=None,
        headroom_percent=None,
        epochs=None,
        warmup_epochs=None,
        steps=STEPS,
        warmup_steps=WARMUP_STEPS,
        explain=False,
        monitor_interval_s=None,
        optimizer={**trial.optimizer, "lr_reference_batch": None, "schedule": None},
    )


@dataclass(frozen=True, kw_only=True)
class Try:
    """One launch of a search."""

    batch_size_per_device: int
    fits: bool
    reason: str | None  # the error, where it did not fit
    peak_allocated_bytes: int | None  # CUDA, of the rank that had most; null where it did not fit
    peak_reserved_bytes: int | None
    peak_memory_bytes: int | None  # resident, on the host


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search leaves: largest.json."""

    probe: Trial
    status: Literal["ok", "unavailable"]
    reason: str | None  # why it is not ok
    fits: int | None  # samples per device: the largest batch that was seen to fit
    limit: int  # samples per device: all training samples over all devices
    precision_percent: float = PRECISION_PERCENT
    tries: list[Try] = field(default_factory=list)  # in the order of their launches
    environment: dict[str, Any] = field(default_factory=dict)  # of rank 0's machine

    def write(self, folder: Path) -> None:
        """Write largest.json: whole or not there."""
        text = json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, indent=1, allow_nan=False) + "\n"
        write_atomically(folder / FILE, text.encode())

    @classmethod
    def read(cls, path: Path) -> Search:
        """The search in a largest.json.

        Raises:
            Damaged: unreadable.
            UserError: of another format.
        """
        remedy = f"delete {path} and run the same command again"
        try:
            data = json.loads(path.read_text())
            if (found := data.pop("format_version")) != FORMAT_VERSION:
                raise UserError(f"{path}: format {found}, this code reads {FORMAT_VERSION}; {remedy}")
            tries = [Try(**item) for item in data["tries"]]
            return cls(**{**data, "probe": Trial(**data["probe"]), "tries": tries})
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{path}: no whole search ({type(error).__name__}: {error}); {remedy}") from None


def with_headroom(fits: int, headroom_percent: float, parts: int) -> int:
    """Samples per device that stay so many percent below what fits; a multiple of `parts`, and at least that."""
    batch = math.floor(fits * (100 - headroom_percent) / 100)
    return max(batch - batch % parts, parts)


def with_its_batch(trial: Trial, path: Path | None) -> tuple[Trial, dict[str, Any] | None]:
    """The trial with the batch that a search found for it, and what its record is to say of that search.

    Where the search could not run, the batch stays open: neither can the trial, and its ranks say why.

    Raises:
        UserError: no search is given, or it is of another configuration.
    """
    if trial.batch_size_per_device is not None:
        return trial, None
    if trial.scaling != LARGEST or path is None:
        raise UserError("no batch: give --batch-size-per-device, or the --largest file of the search for it")
    search = Search.read(path)
    if search.probe != probe_of(trial):
        raise UserError(f"{path}: of another configuration; run the same command again, or delete it")
    facts = {
        "fits": search.fits,
        "limit": search.limit,
        "tries": len(search.tries),
        "device_model": search.environment.get("device_model"),
    }
    if search.fits is None:
        return trial, facts
    assert trial.headroom_percent is not None
    batch = with_headroom(search.fits, trial.headroom_percent, parts_of(trial))
    return replace(trial, batch_size_per_device=batch), facts
