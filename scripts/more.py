"""Raise the repeats of cells whose interval of the epoch time is wider than a share of it, and print the experiments that
have such cells. They are written to a file that goes over the configuration, more.yaml, so that the next run measures them
and every later one keeps them."""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from tabulate import tabulate

from dpscale import statistics
from dpscale.config import MOST_REPEATS, Config, load_config
from dpscale.errors import UserError, entry_point
from dpscale.files import refuse_output, write_atomically
from dpscale.planning.plan import plan_trials
from dpscale.reading import merged_configs
from dpscale.tables import read_table
from dpscale.tables.cells import name_of

if TYPE_CHECKING:
    import pandas as pd

HEADER = "# Written by `make more`: cells that are repeated more often than config.yaml says. Delete it to go back.\n"


def repeats_wanted(width_percent: float, repeats: int, percent: float, most: int) -> int:
    """Repeats of a cell whose interval is too wide: those of which its width, which falls with their square root, may
    be expected to be narrow enough, but at most twice as many at a time; at least those that an interval takes."""
    expected = math.ceil(repeats * (width_percent / percent) ** 2)
    return min(most, max(statistics.repeats_needed(1), min(expected, 2 * repeats), repeats + 1))


def too_wide(summary: pd.DataFrame, percent: float) -> list[tuple[str, float, int]]:
    """(cell, width of its interval in % of its epoch time, repeats) of those that are; a range is no interval yet."""
    good = summary[summary.status == "ok"]
    width_percent = 100 * (good.epoch_time_s_high - good.epoch_time_s_low) / good.epoch_time_s
    wide = (width_percent > percent) | (good.repeats < statistics.repeats_needed(1))
    names = [name_of(cell) for cell in good[wide].itertuples()]
    return list(zip(names, width_percent[wide].tolist(), good.repeats[wide].astype(int).tolist(), strict=True))


def raised(config: Config, percent: float, most: int) -> tuple[dict[str, dict[str, int]], list[str], list[list[Any]]]:
    """Experiment -> cell -> its repeats to be; the experiments that have launches to measure, of these and of what an
    interrupted run or a failed trial has left of earlier ones; and rows that tell of all cells that are too wide.

    Raises:
        UserError: no experiment has tables.
    """
    found: dict[str, dict[str, int]] = {}
    due, rows = set(), []
    plans = plan_trials(config)
    folders = {name: Path(config.results_dir, name, "tables") for name in plans}
    measured = {name: folder for name, folder in folders.items() if (folder / "summary.csv").exists()}
    if not measured:
        raise UserError(f"{' and '.join(map(str, folders.values()))}: no summary.csv; run `make run` first")
    for name, folder in measured.items():
        planned = Counter(trial.cell for trial in plans[name])
        for cell, width_percent, repeats in too_wide(read_table(folder, "summary"), percent):
            wanted = repeats_wanted(width_percent, repeats, percent, most)
            if cell in planned and wanted > planned[cell]:
                found.setdefault(name, {})[cell] = wanted
            to_be = max(wanted, planned[cell])
            if cell in planned and to_be > repeats:
                due.add(name)
            rows.append([name, cell, width_percent, repeats, to_be])
    return found, [name for name in measured if name in due], rows


def together(old: Mapping[str, Mapping[str, int]], new: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Of both; where both name a cell, the new number."""
    return {name: {**old.get(name, {}), **new.get(name, {})} for name in sorted({*old, *new})}


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, nargs="+", help="config.yaml, and presets that go over it")
    parser.add_argument("--percent", type=float, required=True, help="the widest interval, in %% of the epoch time")
    parser.add_argument("--most", type=int, required=True, help="repeats of a cell, at most")
    parser.add_argument("--out", type=Path, required=True, help="the file, which is read first where there is one")
    args = parser.parse_args()
    source = ", ".join(map(str, args.config))
    if not args.percent > 0:
        raise UserError(f"--percent={args.percent:g}: give a positive number (make MORE=...)")
    if not 0 < args.most <= MOST_REPEATS:
        raise UserError(f"--most={args.most}: give a number from 1 to {MOST_REPEATS} (make MOST=...)")
    refuse_output(args.out, args.config)
    paths = [args.config[0], *([args.out] if args.out.exists() else []), *args.config[1:]]
    config = load_config(merged_configs(paths), source)
    found, due, rows = raised(config, args.percent, args.most)
    header = ["experiment", "cell", "width, %", "repeats", "repeats to be"]
    print(
        tabulate(rows, header, floatfmt=".1f") if rows else f"no interval is wider than {args.percent:g} %",
        file=sys.stderr,
    )
    if found:
        text = yaml.safe_dump({"more_repeats": together(config.more_repeats, found)})
        write_atomically(args.out, (HEADER + text).encode())
    if due:
        print(*due)
    return 0


if __name__ == "__main__":
    sys.exit(main())
