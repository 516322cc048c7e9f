"""What the monitor's samples warn of: GPUs that were not left alone, or whose clocks were held back, while steps were timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpscale import metrics
from dpscale.monitoring import usage
from dpscale.record import Record
from dpscale.tables.monitor import samples_of

if TYPE_CHECKING:
    import pandas as pd

ANOTHER_PROCESS = "another process had a context on a GPU"


def warnings_of_gpus(record: Record, samples: pd.DataFrame | None) -> list[str]:
    """One for each thing that disturbed any GPU, with its share of samples on the GPU where it was most."""
    shares: dict[str, dict[str, float]] = {}  # what disturbed -> where -> its share
    gpus = 0
    for facts in record.ranks:
        for uuid in facts.device_uuids:
            gpus += 1
            found = samples_of(samples, facts, "gpu", uuid, record)
            if found is not None:
                inside = found[usage.inside(found.time_s.to_numpy(), metrics.timed_windows(record, facts.rank))]
                for what, share in _disturbances(inside).items():
                    shares.setdefault(what, {})[f"{uuid} on {facts.node}"] = share
    return [
        f"{what} in {100 * max(where.values()):.3g} % of samples "
        f"({len(where)} of {gpus} GPUs, most {max(where, key=where.__getitem__)})"
        for what, where in shares.items()
    ]


def _disturbances(inside: pd.DataFrame) -> dict[str, float]:
    """What disturbed one GPU -> its share, above 0, of the samples that tell."""
    others = inside.processes.dropna() > 1  # the rank's own is one
    found = {ANOTHER_PROCESS: float(others.mean())} if others.any() else {}
    held_back = usage.throttling_shares(inside.throttle_reasons.dropna().tolist())
    return found | {f"clocks were held back by {reason}": share for reason, share in held_back.items()}
