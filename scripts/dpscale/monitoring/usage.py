"""Pure arithmetic on the monitor's samples: what was used in given windows of time. Arrays are of one device, in order of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from dpscale.record import Window


def inside(times_s: np.ndarray, windows: Sequence[Window]) -> np.ndarray:
    """Which samples were taken inside a window."""
    return np.any([(start <= times_s) & (times_s <= end) for start, end in windows], axis=0)


def counted(times_s: np.ndarray, counter: np.ndarray, windows: Sequence[Window]) -> float | None:
    """By how much a counter grew inside the windows, straight lines between its samples. None where they don't enclose all."""
    if len(times_s) < 2 or np.isnan(counter).any():
        return None
    if times_s[0] > min(start for start, _ in windows) or times_s[-1] < max(end for _, end in windows):
        return None
    return float(sum(np.interp(end, times_s, counter) - np.interp(start, times_s, counter) for start, end in windows))


def unwrapped(counter: np.ndarray, span: float) -> np.ndarray:
    """A counter that begins again at `span`, as one that runs on."""
    return counter + span * np.concatenate([[0], np.cumsum(np.diff(counter) < 0)])


def rates(times_s: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """Growth of a counter per second from each sample to the next; of the first there is none."""
    if len(times_s) < 2:
        return np.full(len(times_s), np.nan)
    return np.concatenate([[np.nan], np.diff(counter) / np.diff(times_s)])


def apart(times_s: np.ndarray, least_s: float) -> np.ndarray:
    """Which samples are at least so far from the one that was chosen before them: the last of all comes when it is asked for,
    and what a counter grew in a moment is more of its resolution than of a rate."""
    chosen = np.zeros(len(times_s), bool)
    last_s = -np.inf
    for index, time_s in enumerate(times_s):
        if time_s - last_s >= least_s:
            chosen[index], last_s = True, time_s
    return chosen


def lowest_before(times_s: np.ndarray, values: np.ndarray, begin_s: float) -> float | None:
    """The lowest value before a moment; None where there is none."""
    before = values[(times_s < begin_s) & ~np.isnan(values)]
    return float(before.min()) if len(before) else None


def throttling_shares(reasons: Sequence[str]) -> dict[str, float]:
    """Why clocks were held back -> in which share of the samples; empty if they were not."""
    counts = Counter(reason for text in reasons for reason in filter(None, text.split("+")))
    return {reason: count / len(reasons) for reason, count in counts.items()}


def throttling(reasons: Sequence[str]) -> str:
    """The same in words."""
    return ", ".join(f"{reason} {100 * share:.3g} %" for reason, share in throttling_shares(reasons).items())
