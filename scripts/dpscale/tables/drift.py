"""Whether the machine drifted between repeats: cells are interleaved, so what they share over time is the machine's."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from dpscale import statistics
from dpscale.tables.cells import cells_of, measured

if TYPE_CHECKING:
    import pandas as pd

WARN_BELOW_P = 0.01


def drift_warning(timings: pd.DataFrame) -> str | None:
    """What to say of an experiment whose epoch times rose or fell from launch to launch in all cells together."""
    cells = [
        [
            (datetime.fromisoformat(started_at).timestamp(), epoch_s)
            for started_at, epoch_s in zip(cell.started_at, cell.epoch_time_s, strict=True)
        ]
        for cell in map(measured, cells_of(timings))
    ]
    found = statistics.trend(cells)
    if found is None or found.p_value > WARN_BELOW_P:
        return None
    became = "longer" if found.change > 0 else "shorter"
    return (
        f"the machine drifted: from first to last launch epochs became {abs(100 * found.change):.1f} % {became} "
        f"(seasonal Kendall test, p = {found.p_value:.2g})"
    )
