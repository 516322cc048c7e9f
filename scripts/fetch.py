"""Download a dataset's public files, once, before any rank starts; files that are already there and whole are left alone."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from dpscale.errors import UserError, entry_point, suggest
from dpscale.typed import validated
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.fetching import fetch


@entry_point
def main() -> int:
    published = {name: row.published for name, row in DATASETS.items() if row.published is not None}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", help=", ".join(published))
    parser.add_argument("--settings", type=json.loads, default={}, help="the config's datasets.<name>, as JSON")
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # drafts go, as after Ctrl-C
    try:
        if args.dataset not in published:
            raise UserError(f"no public files of {args.dataset!r} are known; {suggest(args.dataset, published)}")
        settings = validated(DatasetConfig, args.settings, f"datasets.{args.dataset}")
        origins = fetch(args.dataset, published[args.dataset], args.out, settings.mirrors)
    except OSError as error:
        raise UserError(f"{args.out}: {error}; mend that and run the same command again") from None
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    for name, origin in origins.items():
        print(f"{args.out / name}: {origin}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
