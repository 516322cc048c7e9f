"""Which files of a results folder are not as they were measured or made: cut, changed or put into another's place since.

Snakemake sees that a file is there and when it was written, and not what is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

from dpscale import largest, record
from dpscale.collectives import run
from dpscale.errors import Damaged, UserError
from dpscale.files import how_changed
from dpscale.forecasting.ledger import LEDGER, read_ledger


def _folder_of_record(path: Path) -> PurePath:
    return record.Record.read(path).trial.folder


def _folder_of_collectives(path: Path) -> PurePath:
    return run.Result.read(path).run.folder


def _folder_of_search(path: Path) -> PurePath:
    return largest.Search.read(path).probe.search_folder


MEASURED: dict[str, Callable[[Path], PurePath]] = {  # name of a file -> the folder that the one in it belongs into
    record.RECORD: _folder_of_record,
    run.FILE: _folder_of_collectives,
    largest.FILE: _folder_of_search,
}


def what_is_wrong(path: Path, results: Path) -> str | None:
    """With a file of a results folder, and with those beside it that it holds the digests of; or None.

    Raises:
        UserError: it is a ledger of predictions, which nothing makes again as they were made.
    """
    if path.name == LEDGER:
        read_ledger(path)
    if (folder_of := MEASURED.get(path.name)) is not None:
        return _wrong_measurement(path, path.parent.relative_to(results), folder_of)
    return f"{path}: {wrong}" if (wrong := how_changed(path)) else None


def _wrong_measurement(path: Path, folder: PurePath, folder_of: Callable[[Path], PurePath]) -> str | None:
    """One of another format is Snakemake's to measure again, as its code is another."""
    try:
        belongs_into = folder_of(path)
    except Damaged as error:
        return str(error).rpartition("; ")[0]
    except UserError:
        return None
    return None if belongs_into == folder else f"{path}: it belongs into {belongs_into}"
