"""Print the files of what is planned and could not run where it ran: records, searches for a batch, times of collectives.
`make reprobe` makes them again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from dpscale import largest
from dpscale.collectives.run import FILE, Result, Run
from dpscale.config import load_config
from dpscale.errors import entry_point
from dpscale.planning.collectives import plan_collectives
from dpscale.planning.plan import plan_trials
from dpscale.reading import merged_configs
from dpscale.record import RECORD, Record
from dpscale.trial import LARGEST, Trial


def unavailable(trial: Trial, results: Path) -> Iterator[Path]:
    """Files of one trial, those that are made first before the others."""
    search = results / trial.search_folder / largest.FILE
    if trial.scaling == LARGEST and search.is_file() and largest.Search.read(search).status == "unavailable":
        yield search
    record = results / trial.folder / RECORD
    if record.is_file() and Record.read(record).status == "unavailable":
        yield record


def unavailable_run(run: Run, results: Path) -> Iterator[Path]:
    """The file of one run of collectives."""
    path = results / run.folder / FILE
    if path.is_file() and Result.read(path).status == "unavailable":
        yield path


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, nargs="+", help="config.yaml, and presets that go over it")
    args = parser.parse_args()
    source = ", ".join(map(str, args.config))
    config = load_config(merged_configs(args.config), source)
    trials = [trial for planned in plan_trials(config, source).values() for trial in planned]
    runs = [run for planned in plan_collectives(config, source).values() for run in planned]
    results = Path(config.results_dir)
    found = [path for trial in trials for path in unavailable(trial, results)]
    for path in dict.fromkeys([*found, *(path for run in runs for path in unavailable_run(run, results))]):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
