"""Compare two result sets: what became faster or slower from the first to the second, beyond noise, and what else changed.

Each is the name of a snapshot, or a folder of results, named with a slash: ./results. The exit code says what was found:

  0  every cell of the first was compared, and none is shown to be slower
  3  at least one cell is slower
  2  cells of the first can't be compared, and none of the others is slower; or there is nothing to compare
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")  # whatever MPLBACKEND says: no window is ever wanted

import pandas as pd
from tabulate import tabulate

from dpscale.config import FigureConfig
from dpscale.errors import entry_point
from dpscale.figures import render
from dpscale.files import sha256_of, write_atomically
from dpscale.snapshots import FOLDER, occasion
from dpscale.tables.cells import name_of, reaches
from dpscale.tables.changes import SAME_LAUNCHES, changes, environment_changes, is_slower, is_untested
from dpscale.typed import validated

if TYPE_CHECKING:
    from dpscale.tables.changes import Occasion

NO_SLOWDOWN, CANNOT_COMPARE, SLOWDOWN = 0, 2, 3  # 1 is left to what nobody expected; 2 is argparse's too
SHOWN = 60  # letters of a fact's value


def exit_code(cells: pd.DataFrame) -> int:
    if is_slower(cells).any():
        return SLOWDOWN
    return CANNOT_COMPARE if is_untested(cells).any() or cells.p_value.isna().all() else NO_SLOWDOWN


def described(tables: dict[str, pd.DataFrame], before: Occasion, after: Occasion) -> Iterator[str]:
    """What is printed: which two, in what else they differ, each cell, and the end of it."""
    yield f"before: {before.description}\nafter:  {after.description}\n"
    facts = tables["environment_changes"]
    if facts.empty:
        yield "Environment: no recorded fact differs.\n"
    else:
        rows = [[row.fact, _short(row.before), _short(row.after)] for row in facts.itertuples()]
        yield f"Environment: these facts differ.\n{tabulate(rows, ['fact', 'before', 'after'], disable_numparse=True)}\n"
    cells = tables["changes"]
    header = ["cell", "before, s", "after, s", "throughput ratio", "effect", "p (Holm)", "n", "verdict"]
    yield f"{tabulate([_row(cell) for cell in cells.itertuples()], header, disable_numparse=True)}\n"
    if between := reaches(cells, "repeats_before", "repeats_after"):
        yield f"In brackets: {between}. Ratio: after / before, below 1 it became slower. Effect: Cliff's delta."
    slower: list[Any] = list(cells[is_slower(cells)].itertuples())
    untested: list[Any] = list(cells[is_untested(cells)].itertuples())
    for cell in slower:
        yield f"SLOWER by {100 * (1 - cell.throughput_ratio):.1f} %: {_name(cell)}"
    same = cells[cells.verdict == SAME_LAUNCHES]
    for experiment, those in same.groupby("experiment", sort=False):
        everything = len(those) == (cells.experiment == experiment).sum()
        names = "all its cells" if everything else ", ".join(name_of(cell) for cell in those.itertuples())
        yield f"NOT COMPARED: {experiment}: {names}: the very launches of before; measure again, then compare"
    shared = cells[cells.verdict != SAME_LAUNCHES].groupby("experiment", sort=False).repeats_shared.sum()
    for name, count in shared[shared > 0].items():
        yield f"{name}: {count} launches are in both sets; they count as measured before alone."
    for cell in untested:
        if cell.verdict == SAME_LAUNCHES:
            continue
        yield f"NOT COMPARED: {_name(cell)}: {cell.verdict}{'' if pd.isna(cell.differs_in) else f': {cell.differs_in}'}"
    if not slower and not untested:
        yield "No cell is shown to be slower."


def _short(value: Any) -> str:
    text = "not recorded" if pd.isna(value) else str(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


def _name(cell: Any) -> str:
    return f"{cell.experiment}/{name_of(cell)}"


def _row(cell: Any) -> list[str]:
    def number(name: str, form: str = ".3f") -> str:
        value = getattr(cell, name)
        return "" if pd.isna(value) else f"{value:{form}}"

    ratio = number("throughput_ratio")
    if ratio:
        ratio += f" [{number('throughput_ratio_low')}, {number('throughput_ratio_high')}]"
    times = (number("epoch_time_before_s"), number("epoch_time_after_s"))
    counts = f"{cell.repeats_before}, {cell.repeats_after}"
    return [
        _name(cell),
        *times,
        ratio,
        number("cliffs_delta", ".2f"),
        number("p_value_holm", ".2g"),
        counts,
        cell.verdict,
    ]


def write(tables: dict[str, pd.DataFrame], folder: Path, settings: FigureConfig) -> None:
    """Both tables, and the figure in all formats."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_atomically(folder / f"{name}.csv", table.to_csv(index=False).encode())
    source = f"changes.csv sha256:{sha256_of(folder / 'changes.csv')}"  # which scripts/trace_figure.py looks for
    for kind, content in render("changes", tables, settings, source=source).items():
        write_atomically(folder / f"changes.{kind}", content)


@partial(entry_point, failed=CANNOT_COMPARE)
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--snapshots", type=Path, default=Path(FOLDER), help="folder of all snapshots")
    parser.add_argument("--out", type=Path, help="folder for the tables and the figure; without it they are not kept")
    parser.add_argument("--settings", type=json.loads, default={}, help="the config's figures, as JSON")
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 whatever a comparison finds")
    args = parser.parse_args()
    settings = validated(FigureConfig, args.settings, "figures")
    before, after = (occasion(name, args.snapshots) for name in (args.before, args.after))
    tables = {"changes": changes(before, after), "environment_changes": environment_changes(before, after)}
    if args.out is not None:
        write(tables, args.out, settings)
    for part in described(tables, before, after):
        print(part)
    return NO_SLOWDOWN if args.exit_zero else exit_code(tables["changes"])


if __name__ == "__main__":
    sys.exit(main())
