"""Print a short table of an experiment's summary, and where to look next."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

import pandas as pd
from tabulate import tabulate

from dpscale.errors import entry_point
from dpscale.tables import read_table
from dpscale.tables.cells import name_of, reaches

WIDTH = 120  # of text
COLUMNS = {
    "strategy": "strategy",
    "launcher": "launcher",
    "devices": "devices",
    "precision": "precision",
    "epoch_time_s": "epoch, s",
    "speedup": "speed-up",
    "scaling_efficiency": "efficiency",
    "utilization_percent": "utilisation, %",
    "repeats": "n",
}


def with_range(cell: pd.Series, column: str) -> str:
    """A value with its low and high; n/a where there is none."""
    if pd.isna(cell[column]):
        return "n/a"
    if f"{column}_low" not in cell:
        return str(cell[column])
    digits = 0 if column.endswith("percent") else 2
    low, high = cell[f"{column}_low"], cell[f"{column}_high"]
    return f"{cell[column]:.{digits}f}" + (f" [{low:.{digits}f}, {high:.{digits}f}]" if low < high else "")


def advice(path: Path) -> Iterator[str]:
    """What the experiment's advice comes to, where there is any."""
    if not path.exists():
        return
    table = read_table(path.parent, "advice")
    short = table[table.about == "in_short"].iloc[0]
    for name, column in {"advice": "verdict", "why": "why", "next": "next_step"}.items():
        if pd.notna(short[column]):
            yield "\n" * (name == "advice") + fill(f"{name + ':':8} {short[column]}", WIDTH, subsequent_indent=" " * 9)


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("summary", type=Path, nargs="+", help="summary.csv of an experiment")
    parser.add_argument("--report", type=Path, help="the report, to be named")
    args = parser.parse_args()
    for path in args.summary:
        summary = read_table(path.parent, "summary")
        rows = [[with_range(cell, column) for column in COLUMNS] for _, cell in summary.iterrows()]
        print(f"\n{summary.experiment.iloc[0]}\n")
        print(tabulate(rows, list(COLUMNS.values()), disable_numparse=True))
        if between := reaches(summary, "repeats"):
            print(f"\nMedians; in brackets: {between}.")
        for cell in summary[summary.status != "ok"].itertuples():
            print(f"{name_of(cell)}: {cell.status}: {cell.reason}")
        for warning, cells in summary[summary.warnings.notna()].groupby("warnings", sort=False):
            print(f"{', '.join(map(name_of, cells.itertuples()))}: {warning}")
        for cell in summary[summary.noise_floor_percent.notna()].itertuples():
            print(f"noise floor, from {name_of(cell)}: {cell.noise_floor_percent:.1f} %")
        for line in advice(path.with_name("advice.csv")):
            print(line)
        print(f"\nfigures: {path.parents[1] / 'figures'}\ntables:  {path.parent}")
    if args.report:
        print(f"report:  {args.report}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it as it ends any program: without a word
    sys.exit(main())
