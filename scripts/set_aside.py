"""Set aside every result that is not whole, so that it is measured again. What `make run` does before it measures.

Snakemake sees that a file is there, and not what is in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path, PurePath

from dpscale import largest, record
from dpscale.collectives import run
from dpscale.disk import room_for
from dpscale.errors import Damaged, UserError


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


def forget_tables(experiment: Path) -> None:
    """They are made of its results in seconds, and Snakemake makes none of these again unless something is to be made of it."""
    for table in experiment.glob("tables/*.csv"):
        table.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the results folder")
    args = parser.parse_args()
    try:
        for pattern, folder_of in RESULTS.items():
            for path in sorted(args.results.glob(pattern)):
                wrong = what_is_wrong(path, path.parent.relative_to(args.results), folder_of)
                if wrong is not None:
                    aside = path.with_stem(f"{path.stem}.damaged")
                    with room_for(path):
                        forget_tables(args.results / path.relative_to(args.results).parts[0])
                        path.replace(aside)
                    print(f"{wrong}; set aside as {aside.name}, to be measured again")
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
