"""Rows that runs of collectives give: one for each operation, dtype and size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dpscale import statistics
from dpscale.collectives.operations import algbw_GB_per_s, busbw_GB_per_s
from dpscale.collectives.run import Point, Result, Run
from dpscale.errors import UserError
from dpscale.tables import refuse_mixed
from dpscale.tables.schema import frame
from dpscale.tables.schema.cells import RUN

if TYPE_CHECKING:
    import pandas as pd

    Measured = tuple[Run, Result | None, pd.DataFrame | None]  # a planned run, and what there is of it

P99_NEEDS = 100  # values: of fewer it would be their maximum


def make_table(measured: Sequence[Measured], mixed_nodes: bool = False) -> pd.DataFrame:
    """The table `collectives` of one experiment.

    Raises:
        UserError: a result is of another run than planned, or results come from different classes of machine.
    """
    for run, result, _ in measured:
        if result is not None and result.run != run:
            raise UserError(
                f"{run.id}: its result is of another configuration; run the same command again, or delete {run.folder}"
            )
    if not mixed_nodes:
        good = [result for _, result, _ in measured if result is not None and result.status == "ok"]
        refuse_mixed([(result.run.id, [result.environment, *result.nodes]) for result in good], "time_collectives")
    return frame("collectives", [row for item in measured for row in _rows(*item)])


def _rows(run: Run, result: Result | None, times: pd.DataFrame | None) -> Iterator[dict[str, Any]]:
    shared: dict[str, Any] = {name: getattr(run, name) for name in (*RUN, "world_size", "backend")}
    if result is None or result.status != "ok" or times is None:
        status, reason = ("missing", "not measured yet") if result is None else (result.status, result.reason)
        for operation in run.operations:
            for dtype in run.dtypes:
                place = {"operation": operation, "dtype": dtype, "status": status, "reason": reason}
                yield from ({**shared, **place, "size_bytes": size, "warnings": ""} for size in run.sizes)
        return
    shared |= {
        "copy_GB_per_s": min(result.copy_GB_per_s),
        "started_at": result.launch["started_at"],
        "warnings": "; ".join(_warnings(result)),
    }
    by_point = dict(list(times.groupby(["operation", "dtype", "size_bytes"])))
    for point in result.points:
        mine = by_point.get((point.operation, point.dtype, point.size_bytes))
        yield shared | _row(point, mine, run.world_size)


def _row(point: Point, times: pd.DataFrame | None, ranks: int) -> dict[str, Any]:
    place = {"operation": point.operation, "dtype": point.dtype, "size_bytes": point.size_bytes}
    if times is None:
        return {**place, "status": "unavailable", "reason": point.reason}
    found = statistics.estimate(times_of_a_call_s(times))
    row = {
        **place,
        "status": "ok",
        "reason": "",
        "time_s": found.value,
        "time_s_low": found.low,
        "time_s_high": found.high,
        "time_p99_s": _p99(times_of_a_call_s(times)),
        "spread": found.spread,
        "blocks": point.blocks,
        "calls_per_block": point.calls_per_block,
        "checked": point.checked,
    }
    for end, time_s in (("", found.value), ("_low", found.high), ("_high", found.low)):
        row[f"algbw_GB_per_s{end}"] = algbw_GB_per_s(point.size_bytes, time_s)
        row[f"busbw_GB_per_s{end}"] = busbw_GB_per_s(point.operation, point.size_bytes, time_s, ranks)
    return row


def times_of_a_call_s(times: pd.DataFrame) -> list[float]:
    """[block]: a collective has ended when its slowest rank has."""
    by_block = times.groupby("block", sort=True)
    return [float(value) for value in by_block.time_s.max() / by_block.calls.first()]


def _p99(values: list[float]) -> float | None:
    """The smallest value that at least 99 of 100 do not exceed; None of too few."""
    return sorted(values)[-(-99 * len(values) // 100) - 1] if len(values) >= P99_NEEDS else None


def _warnings(result: Result) -> Iterator[str]:
    if result.run.network is not None:
        yield f"emulated network: {result.run.network}"
    if result.oversubscribed:
        run = result.run
        yield (
            f"oversubscribed: {run.ranks_per_node} ranks x {run.threads_per_rank} threads on "
            f"{result.environment['usable_cpus']} usable CPUs"
        )
    if (result.launch.get("slurm") or {}).get("shared"):
        yield "shared nodes: other jobs may have run on them"
