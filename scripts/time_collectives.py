"""Times collectives: one rank of one run. Started by scripts/launch_collectives.py through a launcher."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from dpscale.collectives.exchanges import Exchange, exchange_of
from dpscale.collectives.operations import ITEM_BYTES, count_of
from dpscale.collectives.run import TIMES, Point, Result, Run, write_times, write_unavailable
from dpscale.collectives.timing import Timed, copy_GB_per_s, time_exchange
from dpscale.emulation.link import Link
from dpscale.emulation.network import Network
from dpscale.environment import describe_machine
from dpscale.launching.attempt import write_failure
from dpscale.ranks import be_rank
from dpscale.world import World, process_group, unmet_need


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One rank's share of a point."""

    operation: str
    dtype: str
    size_bytes: int
    reason: str | None = None
    timed: Timed | None = None


def measure(run: Run, out: Path, world: World) -> None:
    """Time all that the run asks for, and let rank 0 write the draft of the result."""
    copy = copy_GB_per_s(world)
    link = None if run.network is None else Link(Network.read(Path(run.network)), world)
    mine = [point for operation in run.operations for point in points_of(operation, run, world, link)]
    machine = describe_machine(run.device) if world.local_rank == 0 else None
    gathered = world.gather((mine, copy, machine))
    if gathered is None:
        return
    by_rank = [points for points, _, _ in gathered]
    nodes = [ranks_machine for _, _, ranks_machine in gathered if ranks_machine is not None]
    Result(
        run=run,
        status="ok",
        environment=nodes[0],
        nodes=nodes,
        copy_GB_per_s=[ranks_copy for _, ranks_copy, _ in gathered],
        oversubscribed=any(run.ranks_per_node * run.threads_per_rank > node["usable_cpus"] for node in nodes),
        points=[point_of(points) for points in zip(*by_rank, strict=True)],
        times_sha256=write_times(out / TIMES, time_columns(by_rank)),
    ).write(out)


def points_of(operation: str, run: Run, world: World, link: Link | None) -> Iterator[Measured]:
    """Every dtype and size of one operation."""
    for dtype in run.dtypes:
        reason = cannot(operation, dtype, world)
        world.say(f"{operation}, {dtype}" + (f": {reason}" if reason else ""))
        for size in run.sizes:
            size_bytes = count_of(operation, size, dtype, world.size) * ITEM_BYTES[dtype]
            point = Measured(operation=operation, dtype=dtype, size_bytes=size_bytes or size)
            if reason is None and size_bytes > 0:
                exchange = over(link, exchange_of(operation, size_bytes, dtype, world))
                timed = time_exchange(exchange, world, run.blocks, run.seconds_per_size)
                yield Measured(operation=operation, dtype=dtype, size_bytes=size_bytes, timed=timed)
            else:
                too_small = f"{size} bytes of {dtype} have no part for each of {world.size} ranks"
                yield Measured(**{**vars(point), "reason": reason or too_small})


def over(link: Link | None, exchange: Exchange) -> Exchange:
    """The same all-reduce over an emulated link, if there is one."""
    buffer = exchange.result
    if link is None or buffer is None:
        return exchange
    return replace(exchange, call=lambda: link.all_reduce(buffer).wait())


def cannot(operation: str, dtype: str, world: World) -> str | None:
    """Why the backend can't do it, or None: what it lacks it refuses on every rank before it sends anything."""
    refusal = ""
    try:
        exchange = exchange_of(operation, world.size * ITEM_BYTES[dtype], dtype, world)
        exchange.fill()
        exchange.call()
        world.synchronize()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        refusal = str(error).partition("\n")[0]
    refusals = int(world.largest(float(bool(refusal))))
    if refusals == 0:
        return None
    return f"{torch.distributed.get_backend()} can't: {refusal or 'another rank refused'}"


def point_of(by_rank: tuple[Measured, ...]) -> Point:
    """The point of all ranks together."""
    first = by_rank[0]
    timed = [measured.timed for measured in by_rank if measured.timed is not None]
    return Point(
        operation=first.operation,
        dtype=first.dtype,
        size_bytes=first.size_bytes,
        reason=first.reason,
        calls_per_block=timed[0].calls if timed else None,
        blocks=len(timed[0].times_s) if timed else 0,
        checked=sum(ranks.checked for ranks in timed),
    )


def time_columns(by_rank: list[list[Measured]]) -> dict[str, list[Any]]:
    """Every rank's every block as columns of times.parquet."""
    rows = [
        (point.operation, point.dtype, point.size_bytes, block, rank, point.timed.calls, time_s)
        for rank, points in enumerate(by_rank)
        for point in points
        if point.timed is not None
        for block, time_s in enumerate(point.timed.times_s)
    ]
    names = ("operation", "dtype", "size_bytes", "block", "rank", "calls", "time_s")
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="existing folder for the draft of the result")
    Run.add_arguments(parser)
    args = parser.parse_args(argv)
    be_rank(lambda rank: time_all(rank, Run.from_args(args), args.out), args.out)


def time_all(rank: int, run: Run, out: Path) -> None:
    """This rank's part of the run, or the result that it is unavailable here.

    Raises:
        UserError: it can't be measured.
    """
    torch.set_num_threads(run.threads_per_rank)
    if reason := unmet_need(run):
        if rank == 0:
            write_unavailable(run, reason, out)
        return
    with process_group(run) as world:
        try:
            measure(run, out, world)
        except Exception as error:
            write_failure(out, error)  # before this block's end closes connections and fails the others
            raise


if __name__ == "__main__":
    main()
