"""The plan, the records and the tables of one experiment -> its methods, as a page in words fit for a paper."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dpscale.config import load_config
from dpscale.errors import entry_point
from dpscale.files import write_sealed
from dpscale.forecasting.forecasts import plan_forecasts
from dpscale.methods import sections_of
from dpscale.methods.page import page
from dpscale.methods.study import Study
from dpscale.planning.collectives import plan_collectives
from dpscale.planning.plan import plan_trials
from dpscale.record import RECORD, Record
from dpscale.tables import read_table
from dpscale.trial import Trial
from dpscale.workloads.prepared import MANIFEST, read_manifest

TABLES_READ = ("summary", "timings", "comparisons", "causes", "monitor", "collectives", "prediction", "records")


def study_of(experiment: str, config_json: dict[str, object], results: Path, data: Path) -> Study:
    """What there is: the records that the tables are made from, and no others."""
    config = load_config(config_json)
    plans = plan_trials(config)
    forecasts = plan_forecasts(config, plans, plan_collectives(config))[experiment]
    tables = {name: read_table(results / experiment / "tables", name) for name in TABLES_READ}
    paths = [results / str(path) for path in tables["records"].record.dropna()]
    return Study(
        name=experiment,
        settings=config.experiments[experiment],
        trials=plans[experiment],
        records=[Record.read(path) for path in paths],
        tables=tables,
        manifest=read_manifest(data) if (data / MANIFEST).exists() else None,
        for_prediction=[(trial, record_of(trial, results)) for forecast in forecasts for trial in forecast.sweep],
    )


def record_of(trial: Trial, results: Path) -> Record | None:
    """None where it is not there, or is of another configuration."""
    path = results / trial.folder / RECORD
    record = Record.read(path) if path.exists() else None
    return record if record is not None and record.trial == trial else None


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--config", type=json.loads, required=True, help="the configuration, as JSON")
    parser.add_argument("--results", type=Path, required=True, help="the results folder")
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset, which may be absent")
    parser.add_argument("--out", type=Path, required=True, help="the page")
    args = parser.parse_args()
    study = study_of(args.experiment, args.config, args.results, args.data)
    write_sealed(args.out, page(args.experiment, sections_of(study)).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
