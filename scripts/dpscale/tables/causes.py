"""Rows that say where a step's time goes: of each cell, and of each of its ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dpscale import metrics, statistics
from dpscale.explaining import causes
from dpscale.record import Record
from dpscale.tables.schema import Measured, identity
from dpscale.tables.schema.cells import CELL

Rows = Sequence[Mapping[str, float]]  # of each round, or of each epoch
NOT_ASKED = "explain is false"
NOT_THIS_ONE = "it has no DDP whose exchange can be switched off, or explain is false in its variant"


def causes_of_cells(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    others = any(trial.explain for trial, _, _ in measured)
    return [_cell(items, NOT_THIS_ONE if others else NOT_ASKED) for items in _by_cell(measured)]


def _by_cell(measured: Sequence[Measured]) -> Iterable[list[Measured]]:
    cells: dict[str, list[Measured]] = {}
    for item in measured:
        cells.setdefault(item[0].cell, []).append(item)
    return cells.values()


def _cell(items: list[Measured], otherwise: str) -> dict[str, Any]:
    trial = items[0][0]
    good = list(_good(items))
    row = {**identity(trial, CELL), "repeats": len(good)}
    if not good:
        record = items[0][1]
        missing = {"status": "missing", "reason": "not measured yet"}
        return {**row, **(missing if record is None else {"status": record.status, "reason": record.reason})}
    row |= {"status": "ok", "reason": "", "unexplained_because": "" if trial.explain else otherwise}
    epochs = [costs for record, steps in good for costs in causes.by_epoch(record, steps)]
    row |= _estimates(epochs, causes.EPOCH_COSTS) | {"epoch_spread": _spread(len(epochs))}
    rounds = [terms for record, _ in good if record.explained for terms in causes.by_round(record.explained)]
    if not rounds:
        return row
    training = [{"training_step_s": causes.training_step_s(steps)} for _, steps in good]
    row |= _parts(rounds) | _estimates(rounds, ["loader_effect_s"]) | _estimates(training, ["training_step_s"])
    return row | {
        "unexplained_percent": 100 * abs(row["unexplained_s"]) / row["step_s"],
        "beside_training_percent": 100 * (row["step_s"] / row["training_step_s"] - 1),
        "others_cpu_percent": max(
            percent for record, _ in good if (percent := metrics.others_cpu_percent_in_blocks(record)) is not None
        ),
    }


def _good(items: Iterable[Measured]) -> Iterator[tuple[Record, metrics.Steps]]:
    for _, record, steps in items:
        if record is not None and record.status == "ok" and steps is not None:
            yield record, steps


def _parts(rounds: Rows) -> dict[str, Any]:
    """A step and its parts, which add up: medians do not by themselves, and what they leave is unexplained, too."""
    row = _estimates(rounds, ["step_s", *causes.PARTS])
    others = [part for part in causes.PARTS if part in row and part != "unexplained_s"]
    left = row["step_s"] - math.fsum(row[part] for part in others)
    low, high = min(left, row["unexplained_s_low"]), max(left, row["unexplained_s_high"])
    row |= {"unexplained_s": left, "unexplained_s_low": low, "unexplained_s_high": high}
    return {**row, "rounds": len(rounds), "spread": _spread(len(rounds))}


def _estimates(rows: Rows, names: Iterable[str]) -> dict[str, float]:
    """Medians over the rows that have a value, with their intervals or ranges; a name without any is left out."""
    found: dict[str, float] = {}
    for name in names:
        if values := [row[name] for row in rows if name in row]:
            estimate = statistics.estimate(values)
            found |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return found


def _spread(n: int) -> str:
    return statistics.estimate(list(range(n))).spread


def stragglers(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """One row for each rank of a cell, and for each node that it was on."""
    return [row for items in _by_cell(measured) for row in _ranks(items)]


def _ranks(items: list[Measured]) -> Iterator[dict[str, Any]]:
    trial = items[0][0]
    rounds: dict[tuple[int, str], list[dict[str, float]]] = {}
    for record, _ in _good(items):
        if record.explained is None or trial.world_size == 1:
            continue
        late = causes.stragglers(record.explained)
        for facts in record.ranks:
            parts = causes.by_round(record.explained, facts.rank)
            mine = [{**terms, **ranks[facts.rank]} for terms, ranks in zip(parts, late, strict=True)]
            rounds.setdefault((facts.rank, facts.node), []).extend(mine)
    for (rank, node), rows in sorted(rounds.items()):
        yield {
            **identity(trial, CELL),
            "rank": rank,
            "node_name": node,
            "local_rank": rank % trial.ranks_per_node,
            "rounds_last": round(sum(row["last"] for row in rows)),
            **_estimates(rows, ["local_delay_s", "step_cost_s"]),
            **_parts(rows),
        }
