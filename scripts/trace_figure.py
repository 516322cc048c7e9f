"""Which records a figure was made from, and whether they are still what they were then: of an svg, png or pdf of results/.

Of collectives, and of two result sets, it is the table that the figure was made from.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from dpscale.errors import UserError, entry_point
from dpscale.files import sha256_of
from dpscale.tables import read_table

SOURCE = re.compile(rb"(records|collectives|changes)\.csv sha256:([0-9a-f]{64})")  # as plot.py has put it into the file


def records_of(figure: Path) -> list[tuple[Path, str]]:
    """(record.json, its digest) of every record behind a figure, each held to its digest; of a figure that is of no trials,
    its table.

    Raises:
        UserError: the figure is not there or names no table, or a file is not what it was when the figure was made.
    """
    if not figure.is_file():
        raise UserError(f"{figure}: no such file; give an svg, png or pdf of results/<experiment>/figures")
    named = SOURCE.search(figure.read_bytes())
    if named is None:
        raise UserError(f"{figure}: names no records; make it again with this version")
    place = figure.resolve()
    folder = place.parents[2 if place.parent.name == "print" else 1] / "tables"
    if named[1] == b"changes":  # of two sets, whose tables lie beside it
        folder = place.parent
    origin, digest = folder / f"{named[1].decode()}.csv", named[2].decode()
    _hold(origin, digest)
    if origin.stem != "records":
        return [(origin, digest)]
    table = read_table(folder, "records").dropna(subset=["record"])
    found = [(folder.parents[1] / str(row.record), str(row.record_sha256)) for row in table.itertuples()]
    for path, digest in found:
        _hold(path, digest)
    return found


def _hold(path: Path, digest: str) -> None:
    if not path.is_file() or sha256_of(path) != digest:
        raise UserError(
            f"{path}: missing, or not the one that the figure was made from ({digest}); run snakemake again"
        )


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", type=Path)
    args = parser.parse_args()
    for path, digest in records_of(args.figure):
        print(f"{digest}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
