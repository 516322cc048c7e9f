"""Two result sets of the same experiments, before and after: what became faster or slower, and what else changed.

Records of one table must come from one class of machine and one version of the code; these are of two on purpose, so
everything in which they differ is named instead.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from dpscale.environment import CLASS_FACTS
from dpscale.tables.cells import CELL_KEY, SLOWER, TOO_FEW, Speed, Versus, judgements, measured
from dpscale.tables.schema import frame

if TYPE_CHECKING:
    import pandas as pd

KEY = ("experiment", *CELL_KEY)
Key = tuple[Any, ...]
OTHER_SETTINGS, SAME_LAUNCHES = "other settings", "the same launches"  # verdicts
SEVERAL = " / "  # between the values of a fact that is not the same in all launches of a result set


@dataclass(frozen=True)
class Occasion:
    """What was measured at one time, of all its experiments."""

    name: str  # of the snapshot, or the folder of results
    timings: pd.DataFrame  # with record_sha256, which says which launch of all times a row is
    settings: Mapping[Key, Mapping[str, Any]]  # of each measured cell: all that decides its trials but the repeat
    environments: Sequence[Mapping[str, Any]]  # of every machine of every launch that was measured

    @property
    def description(self) -> str:
        """Which set it is, and when it was measured."""
        good = measured(self.timings)
        return f"{self.name}, {len(good)} launches from {good.started_at.min()} to {good.ended_at.max()}"


@dataclass(frozen=True)
class Cell:
    """A planned cell of one occasion."""

    speed: Speed | None  # None: nothing was measured
    status: str
    reason: str

    @classmethod
    def of(cls, rows: pd.DataFrame, left_out: pd.Series | None = None) -> Cell:
        good = measured(rows if left_out is None else rows[~left_out])
        first = (rows if good.empty else good).iloc[0]
        return cls(None if good.empty else Speed.of(good), first.status, first.reason)


def changes(before: Occasion, after: Occasion) -> pd.DataFrame:
    """A row per cell of either. p-values are adjusted by Holm's method over all cells that have enough launches. A
    launch of both
    sets is one of before alone: a launch says nothing of a change against itself."""
    is_old = after.timings.record_sha256.isin(before.timings.record_sha256.dropna())
    shared = _counts(after.timings[is_old])
    cells_before, cells_after = _cells(before.timings), _cells(after.timings, is_old)
    rows: dict[Key, dict[str, Any]] = {}
    compared: dict[Key, Versus] = {}
    for key in dict.fromkeys([*cells_before, *cells_after]):
        one, two = cells_before.get(key), cells_after.get(key)
        rows[key] = dict(zip(KEY, key, strict=True)) | _times("before", one) | _times("after", two)
        rows[key]["devices"] = rows[key]["nodes"] * rows[key]["devices_per_node"]
        rows[key]["repeats_shared"] = shared[key]
        if one is not None and two is not None and two.speed is None and shared[key]:
            rows[key]["verdict"] = SAME_LAUNCHES
        elif one is None or one.speed is None or two is None or two.speed is None:
            rows[key]["verdict"] = _absent(one, two)
        elif different := ", ".join(_differences(before.settings[key], after.settings[key])):
            rows[key] |= {"verdict": OTHER_SETTINGS, "differs_in": different}
        else:
            compared[key] = Versus.of(two.speed, one.speed)
    for key, judged in zip(compared, judgements(list(compared.values())), strict=True):
        rows[key] |= judged
    return frame("changes", [row | _sets(before, after) for row in rows.values()])


def _sets(before: Occasion, after: Occasion) -> dict[str, str]:
    return {"set_before": before.description, "set_after": after.description}


def is_slower(changes: pd.DataFrame) -> pd.Series:
    return changes.verdict == SLOWER


def is_untested(changes: pd.DataFrame) -> pd.Series:
    """Cells that were measured before and of which it can't be said whether they are slower now."""
    tested = changes.p_value.notna() & ~changes.verdict.str.startswith(TOO_FEW)
    return (changes.repeats_before > 0) & ~tested


def _cells(timings: pd.DataFrame, left_out: pd.Series | None = None) -> dict[Key, Cell]:
    """In the order of the plan."""
    return {
        key: Cell.of(rows, None if left_out is None else left_out[rows.index])
        for key, rows in timings.groupby(list(KEY), sort=False)
    }


def _counts(launches: pd.DataFrame) -> Counter[Key]:
    return Counter(launches[list(KEY)].itertuples(index=False, name=None))


def _times(when: str, cell: Cell | None) -> dict[str, Any]:
    if cell is None or cell.speed is None:
        return {f"repeats_{when}": 0}
    times_s = cell.speed.epoch_times_s
    return {f"repeats_{when}": len(times_s), f"epoch_time_{when}_s": median(times_s)}


def _absent(before: Cell | None, after: Cell | None) -> str:
    """Why one of the two has no numbers."""
    if before is None or after is None:
        return "only after" if before is None else "only before"
    when, cell = ("before", before) if before.speed is None else ("after", after)
    return f"{cell.status} {when}: {cell.reason}"


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Settings that both formats of a record know and that are not the same."""
    for name in before:
        if name in after and before[name] != after[name]:
            yield f"{name}: {_text(after[name])}, before {_text(before[name])}"


def environment_changes(before: Occasion, after: Occasion) -> pd.DataFrame:
    """A row per fact of machine, software, settings or measuring code that is not the same; those that records of one
    table must share come first."""
    facts = [_facts(occasion.environments) for occasion in (before, after)]
    names = list(dict.fromkeys([*CLASS_FACTS, *facts[0], *facts[1]]))
    rows = [
        {
            "fact": name,
            "before": values[0],
            "after": values[1],
            "of_the_class": name in CLASS_FACTS,
            **_sets(before, after),
        }
        for name in names
        if len(set(values := [of_one.get(name) for of_one in facts])) > 1
    ]
    return frame("environment_changes", rows)


def _facts(environments: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Fact -> its values in all launches, each once; those of a group of facts stand as `group.fact`."""
    found: dict[str, set[str]] = {}
    for environment in environments:
        for name, value in environment.items():
            group = {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else None
            for path, one in ({name: value} if group is None else group).items():
                found.setdefault(path, set()).add(_text(one))
    return {name: SEVERAL.join(sorted(values)) for name, values in found.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
