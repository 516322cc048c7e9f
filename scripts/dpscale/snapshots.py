"""Result sets that are kept under a name: records, tables, configuration and checksums.

The raw times of every step, and tables with a row for each, stay behind, so that a snapshot is small. It is a folder that
`sha256sum -c SHA256SUMS` can check:

    <name>/SHA256SUMS
    <name>/config/<place>-<file>                   what was asked for, in the order in which they go over each other
    <name>/results/<experiment>/tables/<table>.csv
    <name>/results/<experiment>/trials/.../record.json
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dpscale.errors import UserError, suggest
from dpscale.files import refuse_changed, sha256_of, write_atomically
from dpscale.tables import read_table
from dpscale.tables.cells import measured
from dpscale.tables.changes import KEY, Key, Occasion
from dpscale.tables.schema import TABLES
from dpscale.trial import Trial

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "snapshots"  # of all, in the folder that things are started in
CHECKSUMS = "SHA256SUMS"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
LEFT_BEHIND = {"losses", "timeline"}  # a row for each step or sample
# what decides no measurement: which repeat it is, and limits
NO_SETTINGS = {"repeat", "seed"} | {field.name for field in dataclasses.fields(Trial) if not field.compare}


@dataclass(frozen=True)
class Kept:
    """What a list of snapshots says of one."""

    name: str
    experiments: list[str]
    launches: int
    measured_until: str
    size_MB: float


def keep(name: str, results: Path, config: Sequence[Path], snapshots: Path) -> Path:
    """Keep what is in a results folder; the snapshot appears whole or not at all.

    Raises:
        UserError: no good name, or one that is taken; nothing is measured, or tables are not of the records beside them.
    """
    if re.fullmatch(NAME, name) is None:
        raise UserError(f"{name!r} is no name of a snapshot; take letters, digits, '.', '_' and '-', the first no sign")
    folder = snapshots / name
    _refuse_taken(folder)
    files = list(_files(results))
    snapshots.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{name}.", suffix=".partial", dir=snapshots) as temporary:
        draft = Path(temporary) / name  # of this process alone: another may be keeping the same
        for place, path in enumerate(config, start=1):
            _copy(path, draft / "config" / f"{place}-{path.name}")
        for path in files:
            _copy(path, draft / "results" / path.relative_to(results))
        kept_files = [path for path in sorted(draft.rglob("*")) if path.is_file()]
        sums = [f"{sha256_of(path)}  {path.relative_to(draft)}\n" for path in kept_files]
        write_atomically(draft / CHECKSUMS, "".join(sums).encode())
        _refuse_taken(folder)
        draft.rename(folder)
    return folder


def _refuse_taken(folder: Path) -> None:
    if folder.exists():
        raise UserError(f"{folder} exists, and no snapshot is overwritten; choose another name, or delete that folder")


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _files(results: Path) -> Iterator[Path]:
    """All of a results folder that a snapshot keeps."""
    for tables in _folders_of_tables(results):
        for path in sorted(tables.glob("*.csv")):
            if path.stem in TABLES and path.stem not in LEFT_BEHIND:
                refuse_changed(path, "delete it and run snakemake first")
                yield path
        for row in _measured_records(tables).itertuples():
            yield _held(results, row)


def _held(results: Path, row: Any) -> Path:
    """The record of a row of the table, which must be the one that the tables were made of."""
    path = results / str(row.record)
    if not path.is_file() or sha256_of(path) != row.record_sha256:
        raise UserError(f"{path}: missing, or newer than the tables; run snakemake first")
    return path


def _folders_of_tables(results: Path) -> list[Path]:
    found = [
        path.parent for path in sorted(results.glob("*/tables/timings.csv")) if path.with_name("records.csv").exists()
    ]
    if not any(len(_measured_records(tables)) for tables in found):
        raise UserError(f"{results}: no experiment with measured trials and their tables; run snakemake first")
    return found


def _measured_records(tables: Path) -> pd.DataFrame:
    records = read_table(tables, "records")
    return records[records.status == "ok"]


def kept(snapshots: Path) -> list[Kept]:
    """All snapshots, by name."""
    found = []
    for sums in sorted(snapshots.glob(f"*/{CHECKSUMS}")):
        good = measured(_timings(sums.parent / "results"))
        size = sum(path.stat().st_size for path in sums.parent.rglob("*") if path.is_file())
        experiments = list(dict.fromkeys(good.experiment))
        found.append(Kept(sums.parent.name, experiments, len(good), str(good.ended_at.max()), size / 1e6))
    return found


def find(name: str, snapshots: Path) -> Path:
    """The results of a snapshot, held to its checksums; or a folder of results that is named with a slash.

    Raises:
        UserError: there is none of that name, or it is not whole.
    """
    if "/" in name:
        return Path(name)
    folder = snapshots / name
    if re.fullmatch(NAME, name) is None or not (folder / CHECKSUMS).is_file():
        there = [sums.parent.name for sums in sorted(snapshots.glob(f"*/{CHECKSUMS}"))]
        others = suggest(name, there) if there else "keep one by: make snapshot NAME=before"
        raise UserError(
            f"{name!r}: no snapshot in {snapshots}, and a folder of results is named as ./results; {others}"
        )
    lines = (folder / CHECKSUMS).read_text().splitlines()
    if not lines:
        raise UserError(f"{folder / CHECKSUMS}: empty, so that nothing holds the snapshot; take another one")
    for line in lines:
        digest, _, path = line.partition("  ")
        if not (folder / path).is_file() or sha256_of(folder / path) != digest:
            raise UserError(
                f"{folder / path}: missing, or not what it was when the snapshot was made; take another one"
            )
    return folder / "results"


def occasion(name: str, snapshots: Path) -> Occasion:
    """What was measured, of a snapshot or a folder of results; raises UserError as `find` and `read`."""
    return read(find(name, snapshots), name)


def read(results: Path, name: str = "") -> Occasion:
    """What was measured, from tables and records.

    Args:
        name: what the set is called; its folder, without one.

    Raises:
        UserError: nothing was, or a record can't be read, or is not the one that the tables were made of.
    """
    settings: dict[Key, dict[str, Any]] = {}
    environments = []
    for tables in _folders_of_tables(results):
        for row in _measured_records(tables).itertuples():
            record = _json(_held(results, row))
            key = tuple(getattr(row, name) for name in KEY)
            settings.setdefault(
                key, {name: value for name, value in record["trial"].items() if name not in NO_SETTINGS}
            )
            environments += [record["environment"], *record["nodes"], _code(record)]
    return Occasion(name or str(results), _timings(results), settings, environments)


def _code(record: dict[str, Any]) -> dict[str, Any]:
    """The digest of all code that a trial ran, as a fact: that of the environment is of the measuring code alone."""
    trial = record["trial"]
    return {"code": {f"{trial['base']} of {trial['model']} by {trial['launcher']}": record["launch"].get("code")}}


def _json(record: Path) -> dict[str, Any]:
    """Of a record of any format: the steps beside it, which Record.read asks for, are left behind."""
    try:
        data = json.loads(record.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{record}: not a whole record ({error})") from None
    if absent := {"trial", "environment", "nodes", "launch"} - data.keys():
        raise UserError(
            f"{record}: format {data.get('format_version')} has no {', '.join(sorted(absent))}; measure it again"
        )
    return data


def _timings(results: Path) -> pd.DataFrame:
    """Of all experiments, each launch with the digest of its record."""
    import pandas as pd

    launch = [*KEY, "repeat"]
    found = [
        read_table(tables, "timings").merge(
            read_table(tables, "records")[[*launch, "record_sha256"]], on=launch, how="left"
        )
        for tables in _folders_of_tables(results)
    ]
    return pd.concat(found, ignore_index=True)
