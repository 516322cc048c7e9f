"""Make a dataset's prepared folder, arrays or packed images, from its files: once, before any rank starts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dpscale.errors import UserError, entry_point, suggest
from dpscale.own import is_own
from dpscale.typed import validated
from dpscale.workloads.arrays import write_prepared
from dpscale.workloads.datasets import DATASETS, own, row_name
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.prepared import Manifest


def prepare(dataset: str, settings: DatasetConfig, out: Path) -> Manifest:
    """Make the folder of a row of DATASETS or of a dataset of the user's own.

    Raises:
        UserError: there is no such dataset, or its files are not as they must be.
    """
    if is_own(dataset):
        return write_prepared(out, dataset, *own.read(dataset))
    name = row_name(dataset, settings)
    if name not in DATASETS:
        raise UserError(f"unknown dataset {name!r}; {suggest(name, DATASETS)}")
    row = DATASETS[name]
    if row.pack is not None:
        return row.pack(dataset, settings, out)
    assert row.read is not None, dataset
    return write_prepared(out, dataset, row.samples(settings).classes, row.read(settings))


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "dataset",
        help=f"{', '.join(DATASETS)}, or package.module:factory of your own, or a name of your own with base in its settings",
    )
    parser.add_argument("--settings", type=json.loads, default={}, help="the config's datasets.<name>, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    args = parser.parse_args()
    try:
        settings = validated(DatasetConfig, args.settings, f"datasets.{args.dataset}")
        manifest = prepare(args.dataset, settings, args.out)
    except OSError as error:
        said = error if error.errno else f"{error} bytes: no room on the disk?"  # as numpy says it
        raise UserError(f"{args.out}: {said}; mend that and run the same command again") from None
    counts = ", ".join(f"{count} {split}" for split, count in manifest.counts.items())
    print(f"{args.out}: {counts} {manifest.samples}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
