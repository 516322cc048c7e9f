"""Keep a result set under a name, to be compared with others by compare.py; without a name, list what is kept."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tabulate import tabulate

from dpscale.errors import entry_point
from dpscale.snapshots import FOLDER, keep, kept


def listing(snapshots: Path) -> str:
    rows = [
        [one.name, ", ".join(one.experiments), one.launches, one.measured_until, one.size_MB] for one in kept(snapshots)
    ]
    if not rows:
        return f"{snapshots}: no snapshot yet; make snapshot NAME=before keeps one"
    return tabulate(rows, ["snapshot", "experiments", "launches", "measured until", "MB"], floatfmt=".1f")


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", help="of the snapshot to be")
    parser.add_argument("--results", type=Path, default=Path("results"), help="the results folder")
    parser.add_argument("--config", type=Path, nargs="+", default=[Path("config.yaml")], help="what it was made by")
    parser.add_argument("--snapshots", type=Path, default=Path(FOLDER), help="folder of all snapshots")
    args = parser.parse_args()
    print(listing(args.snapshots) if args.name is None else keep(args.name, args.results, args.config, args.snapshots))
    return 0


if __name__ == "__main__":
    sys.exit(main())
