"""How many launches ran at a time, by their own records."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from dpscale.methods.study import Study, nodes_of
from dpscale.record import Record


def order(study: Study) -> str:
    """In which order launches were started, and whether they overlapped."""
    again = ", then all again in another" if any(trial.repeat for trial in study.trials) else ""
    launches = [*study.measured, *study.measured_for_prediction]
    return (
        f"Repeats are separate launches: all cells once, in an order drawn from the seed{again}{_together(launches)}."
    )


def _together(launches: list[Record]) -> str:
    if not launches:
        return ""
    if (most := _most_at_once(launches)) == 1:
        return "; no two of those that were measured ran at a time"
    nodes = {name for launch in launches for name in nodes_of(launch)}
    apart = all(_most_at_once(launch for launch in launches if name in nodes_of(launch)) == 1 for name in nodes)
    return f"; up to {most:,} ran at a time, {'each on nodes of its own' if apart else 'some of them on one node'}"


def _most_at_once(launches: Iterable[Record]) -> int:
    """One that begins when another ends does not overlap it."""
    spans = [
        [datetime.fromisoformat(launch.launch[edge]) for edge in ("started_at", "ended_at")] for launch in launches
    ]
    return max(sum(begin <= moment < end for begin, end in spans) for moment, _ in spans)
