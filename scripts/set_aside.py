"""Set aside every result that is not whole, so that it is made again. What `make run` does before it measures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from dpscale import largest, record
from dpscale.collectives import run
from dpscale.damage import what_is_wrong
from dpscale.disk import room_for
from dpscale.errors import entry_point
from dpscale.files import SEAL, sealed_by
from dpscale.forecasting.ledger import LEDGER, read_ledger
from dpscale.tables.schema import TABLES

MEASUREMENTS = (  # where they lie
    f"*/trials/*/*/*/*/{record.RECORD}",
    f"*/collectives/*/*/{run.FILE}",
    f"*/largest/*/*/*/{largest.FILE}",
)


def wrong_measurements(results: Path) -> Iterator[tuple[Path, str]]:
    """(file, what is wrong with it)."""
    for pattern in MEASUREMENTS:
        for path in sorted(results.glob(pattern)):
            if wrong := what_is_wrong(path, results):
                yield path, f"{wrong}; set aside as {aside(path).name}, to be measured again"


def changed_since_made(results: Path) -> Iterator[tuple[Path, str]]:
    """(table, figure, page or calibration, what is wrong with it).

    Raises:
        UserError: it is a ledger of predictions, which nothing makes again as they were made.
    """
    for path in sorted(results.glob(f"*/predictions/{LEDGER}")):
        read_ledger(path)
    tables = [path for name in TABLES for path in results.glob(f"*/tables/{name}.csv")]  # with a seal or without
    for path in sorted({*map(sealed_by, results.rglob(SEAL)), *tables}):
        if path.name != LEDGER and path.exists() and (wrong := what_is_wrong(path, results)):
            yield path, f"{wrong}; set aside as {aside(path).name}, to be made again"


def aside(path: Path) -> Path:
    return path.with_stem(f"{path.stem}.damaged")


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the results folder")
    args = parser.parse_args()
    for path, said in [*wrong_measurements(args.results), *changed_since_made(args.results)]:
        with room_for(path):
            path.replace(aside(path))
        print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
