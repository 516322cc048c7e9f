"""Set aside every result that is not whole, so that it is made again. What `make run` does before it measures.

Snakemake sees that a file is there, and not what is in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from dpscale import largest, record
from dpscale.collectives import run
from dpscale.disk import room_for
from dpscale.errors import Damaged, UserError, entry_point
from dpscale.files import SEAL, is_as_made, sealed_by
from dpscale.forecasting.ledger import LEDGER, read_ledger


def folder_of_record(path: Path) -> PurePath:
    return record.Record.read(path).trial.folder


def folder_of_collectives(path: Path) -> PurePath:
    return run.Result.read(path).run.folder


def folder_of_search(path: Path) -> PurePath:
    return largest.Search.read(path).probe.search_folder


RESULTS: dict[str, Callable[[Path], PurePath]] = {  # where they lie -> the folder that the one in a file belongs into
    f"*/trials/*/*/*/*/{record.RECORD}": folder_of_record,
    f"*/collectives/*/*/{run.FILE}": folder_of_collectives,
    f"*/largest/*/*/*/{largest.FILE}": folder_of_search,
}


def what_is_wrong(path: Path, folder: PurePath, folder_of: Callable[[Path], PurePath]) -> str | None:
    """With a result, or None. One of another format is Snakemake's to measure again, as its code is another."""
    try:
        belongs_into = folder_of(path)
    except Damaged as error:
        return str(error).rpartition("; ")[0]
    except UserError:
        return None
    return None if belongs_into == folder else f"{path}: it belongs into {belongs_into}"


def wrong_measurements(results: Path) -> Iterator[tuple[Path, str]]:
    """(file, what is wrong with it)."""
    for pattern, folder_of in RESULTS.items():
        for path in sorted(results.glob(pattern)):
            wrong = what_is_wrong(path, path.parent.relative_to(results), folder_of)
            if wrong is not None:
                yield path, f"{wrong}; set aside as {aside(path).name}, to be measured again"


def changed_since_made(results: Path) -> Iterator[tuple[Path, str]]:
    """(table, figure, page or calibration, what is wrong with it).

    Raises:
        UserError: it is a ledger of predictions, which nothing makes again as they were made.
    """
    for seal in sorted(results.rglob(SEAL)):
        path = sealed_by(seal)
        if path.name == LEDGER:
            read_ledger(path)
        elif path.exists() and not is_as_made(path):
            yield path, f"{path}: cut or changed since it was made; set aside as {aside(path).name}, to be made again"


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
