"""Published scaling tables: rows of a CSV file -> families of points that differ in the number of devices alone."""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType

from dpscale.errors import UserError
from dpscale.scaling_model.observed import Family, Layout, Point, spelt_alike

FACTS = ("source", "system", "model", "precision", "strategy", "batch_per_gpu")
COLUMNS = (*FACTS, "nodes", "gpus", "metric", "value", "unit")
HARDWARE = ("gpu", "interconnect")  # which a table may tell of a system
LEAST_VALUE, MOST_VALUE = 1e-15, 1e15  # in whatever unit: beyond them it is a slip, and quotients leave floating point
MOST_DEVICES = 10_000_000  # a number of devices beyond it is a slip

_Conversion = Callable[[float, int], float]


@dataclass(frozen=True)
class _Metric:
    """How it turns into the time per step of a fixed batch per device, up to a factor that a family shares, and back."""

    step_time_of: _Conversion
    value_of: _Conversion


METRICS: Mapping[str, _Metric] = MappingProxyType(
    {
        "throughput": _Metric(lambda value, devices: devices / value, lambda time, devices: devices / time),
        "throughput_per_gpu": _Metric(lambda value, devices: 1 / value, lambda time, devices: 1 / time),
        "step_time": _Metric(lambda value, devices: value, lambda time, devices: time),
        "epoch_time": _Metric(lambda value, devices: value * devices, lambda time, devices: time / devices),
    }
)
_QUALIFIED = ("step_time", "epoch_time")  # step_time_p50, epoch_time_train_plus_val

_VERSION = re.compile(r"[A-Za-z][\w+-]*( [A-Za-z][\w+-]*)* v?\d+(\.\d+)+\S*")  # PyTorch 2.0.1+rocm5.4.2


@dataclass(frozen=True)
class Published:
    families: tuple[Family, ...]
    other_metrics: Mapping[str, int]  # metrics that tell no time (memory, utilisation) -> rows


def read_published(path: Path) -> Published:
    """Rows that agree in FACTS, in HARDWARE if it is told, in the software that the note names, in metric and unit are a
    family; of repeats of one layout (runs on other days) the median counts. Spellings of a system that differ in case or
    blanks alone are one, as it is first written.

    Raises:
        UserError: no such table, columns are missing, a row can't be read, or no row tells a time.
    """
    points: dict[tuple[str, ...], dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    others: Counter[str] = Counter()
    systems: dict[str, str] = {}  # as spelt alike -> as first written
    for place, row in _rows(path):
        metric = _metric(row["metric"])
        if metric is None:
            others[row["metric"]] += 1
            continue
        layout, value = _layout(place, row), _value(place, row)
        row["system"] = systems.setdefault(spelt_alike(row["system"]), row["system"])
        facts = (*(row[fact] for fact in FACTS), *(row.get(part, "") for part in HARDWARE))
        key = (*facts, _software(row.get("note", "")), row["metric"], row["unit"])
        points[key][layout.nodes, layout.devices].append(metric.step_time_of(value, layout.devices))
    if not points:
        raise UserError(
            f"{path}: no row tells a time; metrics found: {', '.join(others) or 'none'}; "
            f"known: {', '.join(METRICS)}, with a suffix behind {' and '.join(_QUALIFIED)}"
        )
    families = [
        Family(tuple(Point(*layout, median(times)) for layout, times in sorted(at.items())), *key)
        for key, at in points.items()
    ]
    return Published(tuple(families), MappingProxyType(dict(others)))


def value_of(family: Family, time: float, devices: int) -> float:
    """In the table's own metric and unit."""
    metric = _metric(family.metric)
    assert metric is not None  # or it had not become a family
    return metric.value_of(time, devices)


def _metric(name: str) -> _Metric | None:
    if name in METRICS:
        return METRICS[name]
    return next((METRICS[metric] for metric in _QUALIFIED if name.startswith(f"{metric}_")), None)


def _software(note: str) -> str:
    """Names with a version from the parts of a note; the rest (dates, warm-up) makes no other family."""
    return "; ".join(part for part in map(str.strip, note.split(";")) if _VERSION.fullmatch(part))


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """(place for messages, row) of each."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True, restkey="", restval="")
            missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
            if missing:
                raise UserError(f"{path}: no column {', '.join(missing)}; needed, with commas: {','.join(COLUMNS)}")
            for row in reader:
                place = f"{path}:{reader.line_num}"
                if "" in row:
                    raise UserError(f"{place}: more cells than columns; put quotes around a cell with a comma")
                yield place, {column: cell.strip() for column, cell in row.items()}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: {error}") from error


def _layout(place: str, row: Mapping[str, str]) -> Layout:
    nodes, devices = (_whole(place, row, column) for column in ("nodes", "gpus"))
    if nodes > devices:
        raise UserError(f"{place}: gpus={devices} on nodes={nodes}; gpus counts those of all nodes together")
    return Layout(nodes, devices)


def _value(place: str, row: Mapping[str, str]) -> float:
    number = _number(place, row, "value")
    if not LEAST_VALUE <= number <= MOST_VALUE:
        raise UserError(
            f"{place}: value={row['value']!r} is not between {LEAST_VALUE:g} and {MOST_VALUE:g}; write it in another unit, or leave "
            "the row out"
        )
    return number


def _whole(place: str, row: Mapping[str, str], column: str) -> int:
    number = _number(place, row, column)
    if number != int(number) or number > MOST_DEVICES:
        raise UserError(f"{place}: {column}={row[column]!r} is no whole number up to {MOST_DEVICES}")
    return int(number)


def _number(place: str, row: Mapping[str, str], column: str) -> float:
    try:
        number = float(row[column])
    except ValueError:
        number = float("nan")
    if not 0 < number < float("inf"):
        raise UserError(f"{place}: {column}={row[column]!r} is no positive number; write one, or leave the row out")
    return number
