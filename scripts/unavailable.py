"""Print the record files of planned trials that could not run where they ran: `make reprobe` measures those again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from dpscale.config import load_config
from dpscale.errors import UserError
from dpscale.plan import plan_trials
from dpscale.record import RECORD, Record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, nargs="?", default=Path("config.yaml"))
    args = parser.parse_args()
    try:
        config = load_config(yaml.safe_load(args.config.read_text()), str(args.config))
        trials = [trial for planned in plan_trials(config, str(args.config)).values() for trial in planned]
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    for trial in trials:
        path = Path(config.results_dir, trial.folder, RECORD)
        if path.is_file() and Record.read(path).status == "unavailable":
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
