"""What limits a cell, from the blocks of steps under controls that say where a step's time goes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dpscale.advice.cells import INTERVAL, Tables, is_empty, measure_again
from dpscale.advice.sentences import PARTLY, SHOWN, WITHHELD, Evidence, Sentence
from dpscale.advice.words import amount, number
from dpscale.metrics import FLAG_OTHERS_ABOVE_PERCENT
from dpscale.statistics import Estimate
from dpscale.tables.cells import name_of
from dpscale.trial import PLACEBO
from dpscale.trust import FLAG_BESIDE_TRAINING_ABOVE_PERCENT
from dpscale.words import listed

if TYPE_CHECKING:
    import pandas as pd

MS = 1000


@dataclass(frozen=True)
class Cause:
    """Parts of a step that the same thing would make shorter."""

    name: str
    parts: tuple[str, ...]  # columns of the table causes
    remedy: str


CONTENTION = Cause(
    "contention",
    ("contention_s",),
    "Ranks get in each other's way without exchanging anything: use fewer of them per node, or nodes with more cores and memory "
    "bandwidth; a faster network would not help.",
)
APART = replace(
    CONTENTION,
    remedy="Ranks are alone on their nodes and still slow without exchanging anything: compare the nodes, their clock frequencies "
    "and what they share, such as storage; a faster network would not help.",
)
WRAPPER = Cause("DDP's wrapper", ("wrapper_s",), "Use larger batches per device, or gradient_as_bucket_view.")
EXCHANGE = Cause(
    "the exchange of gradients",
    ("stretch_s", "transfer_s"),
    "Exchange fewer bytes (comm_hook), less often (accumulation_steps, a larger batch per device), or over a faster network.",
)
WAITING = Cause("waiting for other ranks", ("waiting_s",), "Give all ranks equal work on equal, quiet machines.")
UNEXPLAINED = Cause("what is unexplained", ("unexplained_s",), "")
CAUSES = (
    CONTENTION,
    EXCHANGE,
    WAITING,
    Cause("waiting for data", ("data_wait_s",), "Use more loader_workers, or faster storage (cluster.staging_dir)."),
    Cause(
        "the broadcast of buffers",
        ("buffers_s",),
        "Use a model without buffers that each step broadcasts, such as batch norm's statistics.",
    ),
    WRAPPER,
    UNEXPLAINED,
)


@dataclass(frozen=True)
class Found:
    """A cause in one cell."""

    cause: Cause
    takes: Estimate  # ms of a step, or % of one

    @property
    def name(self) -> str:
        return self.cause.name


def causes(tables: Tables) -> list[Sentence]:
    """Of each explained cell on several devices, those on the most devices first."""
    rows = tables["causes"]
    explained = rows[(rows.devices > 1) & rows.step_s.notna() & (rows.strategy != PLACEBO)].sort_values(
        "devices", ascending=False, kind="stable"
    )
    return [_of_cell(row, tables["stragglers"]) for _, row in explained.iterrows()]


def _of_cell(row: Any, stragglers: pd.DataFrame) -> Sentence:
    name = name_of(row)
    of_row = [APART if cause is CONTENTION and row.devices_per_node == 1 else cause for cause in CAUSES]
    there = [each for cause in of_row if (each := _in_cell(row, cause)) is not None]
    found = [each for each in there if not math.isnan(each.takes.high - each.takes.low)]
    named = sorted((each for each in found if each.cause is not UNEXPLAINED), key=lambda each: -each.takes.value)
    if not named or not row.step_s > 0:
        because = "a step takes no time" if named else "no part of its steps has an interval"
        return Sentence(
            about="cause",
            support=WITHHELD,
            verdict=f"What limits {name} most can't be said: {because}.",
            cell=name,
            missing=f"causes of {name} with their intervals",
            next_steps=(measure_again([name]),),
            follows_from=[Evidence("causes.csv", ("step_s", *_columns(there)), (name,))],
        )
    largest, step_ms = named[0], MS * row.step_s
    said = Sentence(
        about="cause",
        support=WITHHELD,
        verdict=f"What limits {name} most can't be said",
        cell=name,
        estimate=largest.takes.times(100 / step_ms),
        unit="% of a step",
        follows_from=[Evidence("causes.csv", ("step_s", "compute_s", *_columns(there)), (name,))],
        warnings=tuple(_cautions(row, name)),
    )
    if doubt := _doubt(row, there, largest):
        return replace(
            said, verdict=f"{said.verdict}: {doubt.because}.", missing=doubt.missing, next_steps=(doubt.next_step,)
        )
    overlap = [each for each in named[1:] if each.takes.high >= largest.takes.low]
    first = [largest, *(each for each in overlap if each.takes.value > 0)]
    times = " and ".join(amount(each.takes, "ms") for each in first)
    open_order = "" if len(first) == 1 else ", which takes more is open"
    rivals = [each.name for each in overlap if each not in first]
    as_much = f"; {listed(rivals)} may take as much" if rivals else ""
    remedies = [each.cause.remedy for each in first]
    if any(each.cause is WAITING for each in first) and (late := _late(stragglers, name)) is not None:
        remedies.append(late)
        said = replace(said, follows_from=[*said.follows_from, Evidence("stragglers.csv", LATE, (name,))])
    return replace(
        said,
        support=PARTLY if overlap else SHOWN,
        verdict=f"{name} is limited most by {listed([each.name for each in first], last='or')}{open_order}: {times} of a "
        f"step of {number(step_ms)} ms{as_much}.",
        why=" ".join(_why(row, [each for each in named if each not in first], largest)),
        missing=f"launches of {name}: so many that the intervals of its causes part" if overlap else "",
        next_steps=tuple(remedies),
    )


def _in_cell(row: Any, cause: Cause) -> Found | None:
    """The sum of its parts, whose low and high are the sums of theirs: wide, but sure to hold what all of theirs hold; nan where
    a part has none."""
    there = [part for part in cause.parts if not is_empty(row[part])]
    if not there:
        return None
    value, low, high = (MS * math.fsum(row[f"{part}{end}"] for part in there) for end in ("", "_low", "_high"))
    return Found(cause, Estimate(value, low, high, row.spread))


def _columns(found: Sequence[Found]) -> tuple[str, ...]:
    return tuple(part for each in found for part in each.cause.parts)


@dataclass(frozen=True)
class Doubt:
    because: str
    missing: str
    next_step: str


def _doubt(row: Any, found: Sequence[Found], largest: Found) -> Doubt | None:
    """Why no cause may be named. `found` are all that have a value, with an interval or without."""
    again = measure_again([name_of(row)])
    if row.spread != INTERVAL:
        return Doubt(f"{row.spread} of its parts is no interval", "rounds: 6 at least", again)
    beside = row.beside_training_percent
    if is_empty(beside):
        return Doubt(
            "whether the steps that explain it are like the training's is not known",
            "causes of steps beside those of the training",
            again,
        )
    if abs(beside) > FLAG_BESIDE_TRAINING_ABOVE_PERCENT:
        longer = f"{number(abs(beside), 0)} % {'longer' if beside > 0 else 'shorter'}"
        return Doubt(
            f"the steps that explain it took {longer} than those of the training",
            "causes of steps that are like the training's",
            f"{again} On a quiet machine.",
        )
    if endless := [f"{each.name} ({number(each.takes.value)} ms)" for each in found if math.isnan(each.takes.high)]:
        because = f"without an interval is {listed(endless)}"
        return Doubt(because, "an interval of each part of its steps", again)
    if contradiction := _contradiction(row, found, largest):
        return Doubt(contradiction, "causes that can be parts of the step", f"{again} On a quiet machine.")
    if largest.takes.high <= 0:
        because = f"no cause takes any time; the largest, {largest.name}, takes {amount(largest.takes, 'ms')}"
        return Doubt(because, "a cause that takes time: more devices cost nothing here", "Look at larger topologies.")
    if largest.takes.low <= 0:
        because = (
            f"no cause is shown to take any time; the largest, {largest.name}, takes {amount(largest.takes, 'ms')}"
        )
        return Doubt(because, "more launches of it, for narrower intervals", "Raise repeats.")
    unexplained = max(
        (max(abs(each.takes.low), abs(each.takes.high)) for each in found if each.cause is UNEXPLAINED), default=0.0
    )
    if unexplained >= largest.takes.low:
        because = (
            f"up to {number(unexplained)} ms are unexplained, and the largest cause, {largest.name}, takes "
            f"{amount(largest.takes, 'ms')}"
        )
        return Doubt(because, "a smaller unexplained part of its steps", f"{again} With more repeats.")
    return None


def _contradiction(row: Any, found: Sequence[Found], largest: Found) -> str:
    """What can't be of a step and its parts; empty if there is nothing."""
    if is_empty(row.compute_s):
        return "what one rank alone takes is not known"
    if outside := [each.name for each in found if not each.takes.low <= each.takes.value <= each.takes.high]:
        return f"the interval of {listed(outside)} does not hold its value"
    step_ms, alone_ms = MS * row.step_s, MS * row.compute_s
    takes = f"{largest.name} would take {amount(largest.takes, 'ms')} of a step of {number(step_ms)} ms"
    if largest.takes.high >= step_ms:
        return f"{takes}, which can't be"
    below_ms = math.fsum(-each.takes.value for each in found if each.takes.value < 0)
    most_ms = MS * (row.step_s_high - row.compute_s_low) + below_ms  # by the ends, as medians of parts do not add up
    if largest.takes.low > most_ms:
        return f"{takes}, of which one rank alone takes {number(alone_ms)} ms, which can't be"
    return ""


def _why(row: Any, others: Sequence[Found], largest: Found) -> Iterator[str]:
    step_ms, alone_ms = MS * row.step_s, MS * row.compute_s
    takes = largest.takes
    without_ms, least_ms, most_ms = (max(alone_ms, step_ms - end) for end in (takes.value, takes.high, takes.low))
    faster = Estimate(step_ms / without_ms, step_ms / most_ms, step_ms / least_ms, takes.spread)
    yield (
        f"One rank alone on its node takes {number(alone_ms)} ms. Without {largest.name} a step would take "
        f"{number(without_ms)} ms, and training be {amount(faster, 'times')} as fast."
    )
    if shown := [f"{each.name} {amount(each.takes, 'ms')}" for each in others if each.takes.low > 0]:
        yield f"Less: {', '.join(shown)}."
    if none := [
        f"{each.name} {amount(each.takes, 'ms')}"
        for each in others
        if each.takes.low < 0 or each.takes.low == 0 < each.takes.high
    ]:
        yield f"Not shown to take any time: {', '.join(none)}."


LATE = ("rank", "node_name", "rounds", "rounds_last")


def _late(stragglers: pd.DataFrame, name: str) -> str | None:
    """A rank that came last in more than half of the rounds, which chance makes none of three or more, and twice of two."""
    mine = stragglers[[name_of(row) == name for row in stragglers.itertuples()]]
    late = mine[(mine.rounds_last > mine.rounds / 2) & (mine.local_delay_s_low > 0)]
    if late.empty:
        return None
    rank = late.iloc[0]
    return f"Rank {rank['rank']} on {rank.node_name} came last in {rank.rounds_last} of {rank.rounds} rounds."


def _cautions(row: Any, name: str) -> Iterator[str]:
    if row.repeats == 1:
        yield f"{name}: from one launch, so how launches differ is in no interval"
    others = row.others_cpu_percent
    if not is_empty(others) and others > FLAG_OTHERS_ABOVE_PERCENT:
        yield f"{name}: other processes used {number(others, 0)} % of the CPUs while causes were measured"
