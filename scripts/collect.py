"""The records of one experiment -> its tables, as csv files."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dpscale.code import trial_code
from dpscale.config import load_config
from dpscale.disk import room_for
from dpscale.errors import entry_point
from dpscale.files import sha256_of, write_sealed
from dpscale.planning.plan import plan_trials
from dpscale.record import RECORD, Record, is_there, read_samples, read_steps
from dpscale.references import published, sets_of
from dpscale.tables import make_tables
from dpscale.tables.schema import Measured
from dpscale.trial import Trial


def measured(trial: Trial, results: Path, partial: bool) -> Measured:
    """What there is of a planned trial; with `partial`, a record of another configuration or code counts as none.

    Raises:
        UserError: its record can't be read, or is missing and `partial` is not given.
    """
    path = results / trial.folder / RECORD
    if not is_there(path, partial):
        return trial, None, None
    record = Record.read(path)
    if partial and (of_another := outdated(record, trial)):
        print(f"{path}: of another {of_another} than the present one: left out")
        return trial, None, None
    if record.status != "ok":
        return trial, record, None
    table = read_steps(path)
    return trial, record, {name: table[name].to_numpy() for name in table.column_names}


def outdated(record: Record, trial: Trial) -> str | None:
    """In what a record is not of the present plan and code, for partial results; elsewhere Snakemake sees to it."""
    if record.trial.planned != trial:
        return "configuration"
    return None if record.launch["code"] == trial_code(trial.base, trial.model, trial.launcher) else "code"


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--config", type=json.loads, required=True, help="the configuration, as JSON")
    parser.add_argument("--results", type=Path, required=True, help="the results folder")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    parser.add_argument("--partial", action="store_true", help="show what is not there as missing")
    args = parser.parse_args()
    config = load_config(args.config)
    trials = plan_trials(config)[args.experiment]
    found = [measured(trial, args.results, args.partial) for trial in trials]
    paths = {trial.id: args.results / trial.folder / RECORD for trial, record, _ in found if record is not None}
    tables = make_tables(
        found,
        config.experiments[args.experiment].mixed_nodes,
        samples={
            record.trial.id: read_samples(paths[record.trial.id]).to_pandas()
            for _, record, _ in found
            if record is not None and record.status == "ok"
        },
        digests={name: sha256_of(path) for name, path in paths.items()},
        published=sets_of(config.experiments[args.experiment].references, published()),
    )
    with room_for(args.out):
        args.out.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            write_sealed(args.out / f"{name}.csv", table.to_csv(index=False).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
