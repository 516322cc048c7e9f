"""The results of one experiment's runs of collectives -> the table `collectives`, as a csv file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dpscale.code import collectives_code
from dpscale.collectives.run import FILE, Result, Run, read_times
from dpscale.disk import room_for
from dpscale.errors import entry_point
from dpscale.files import write_sealed
from dpscale.record import is_there
from dpscale.tables.collectives import make_table

if TYPE_CHECKING:
    from dpscale.tables.collectives import Measured


def measured(run: Run, results: Path, partial: bool) -> Measured:
    """What there is of a planned run; with `partial`, a result of another configuration or code counts as none.

    Raises:
        UserError: its result can't be read, or is missing and `partial` is not given.
    """
    path = results / run.folder / FILE
    if not is_there(path, partial):
        return run, None, None
    result = Result.read(path)
    if partial and (result.run != run or result.launch["code"] != collectives_code(run.launcher)):
        print(f"{path}: of another configuration or code than the present one: left out")
        return run, None, None
    return run, result, read_times(path)


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=json.loads, required=True, help="the planned runs, as JSON")
    parser.add_argument("--mixed-nodes", action="store_true", help="let different classes of machine into one table")
    parser.add_argument("--results", type=Path, required=True, help="the results folder")
    parser.add_argument("--out", type=Path, required=True, help="the csv file")
    parser.add_argument("--partial", action="store_true", help="show what is not there as missing")
    args = parser.parse_args()
    found = [measured(Run(**run), args.results, args.partial) for run in args.runs]
    table = make_table(found, args.mixed_nodes)
    with room_for(args.out):
        args.out.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(args.out, table.to_csv(index=False).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
