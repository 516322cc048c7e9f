"""Lets time pass. Nothing is measured by it: measure.py has a clock of its own."""

from __future__ import annotations

import time


def now_s() -> float:
    """Of the clock that all processes of a machine share."""
    return time.monotonic()


def sleep_until(moment_s: float) -> None:
    """Returns at that moment of the same clock or later, never earlier."""
    while (left_s := moment_s - now_s()) > 0:
        time.sleep(left_s)
