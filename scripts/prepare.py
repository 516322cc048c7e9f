"""Make a dataset's memory-mapped arrays and manifest from its files: once, before any rank starts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dpscale.errors import UserError
from dpscale.typed import validated
from dpscale.workloads.arrays import write_prepared
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.datasets.settings import DatasetConfig


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("--settings", type=json.loads, default={}, help="the config's datasets.<name>, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    args = parser.parse_args()
    row = DATASETS[args.dataset]
    try:
        settings = validated(DatasetConfig, args.settings, f"datasets.{args.dataset}")
        manifest = write_prepared(args.out, args.dataset, row.classes, row.read(settings))
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    counts = ", ".join(f"{count} {split}" for split, count in manifest.counts.items())
    print(f"{args.out}: {counts} images of {' x '.join(map(str, manifest.sample_shape))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
