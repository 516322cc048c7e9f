"""Print the planned trials, their devices, and an upper bound of the device-hours they can take. Starts nothing."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import Counter
from pathlib import Path

from tabulate import tabulate

from dpscale.config import load_config
from dpscale.errors import entry_point
from dpscale.forecasting.forecasts import plan_forecasts
from dpscale.planning.collectives import plan_collectives
from dpscale.planning.plan import plan_trials, upper_bound_device_hours
from dpscale.reading import read_config
from dpscale.trial import LARGEST, Trial


def searches(trials: list[Trial]) -> str:
    """What is to be said of searches for the largest batch."""
    if trials[0].scaling != LARGEST:
        return ""
    return f", and before each cell a search for its batch ({trials[0].search_timeout_s:g} s at most)"


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=json.loads, help="the configuration, as JSON")
    source.add_argument("file", type=Path, nargs="?", help="or a file, such as config.yaml")
    args = parser.parse_args()
    source_name = str(args.file or "config")
    data = args.config if args.file is None else read_config(args.file)
    config = load_config(data, source_name)
    plans, collectives = plan_trials(config, source_name), plan_collectives(config, source_name)
    forecasts = plan_forecasts(config, plans, collectives, source_name)
    for name, trials in plans.items():
        cells = Counter((trial.strategy, trial.launcher, str(trial.topology), trial.devices) for trial in trials)
        first = {(t.strategy, t.launcher, str(t.topology), t.devices): t for t in reversed(trials)}
        rows = [
            [
                *cell,
                first[cell].world_size,
                first[cell].global_batch_size or first[cell].scaling,
                repeats,
                upper_bound_device_hours([trial for trial in trials if trial.cell == first[cell].cell]),
            ]
            for cell, repeats in cells.items()
        ]
        header = [
            "strategy",
            "launcher",
            "topology",
            "devices",
            "ranks",
            "global batch",
            "trials",
            "device-hours, at most",
        ]
        print(f"{name}: {len(trials)} trials in {len(cells)} cells\n")
        print(tabulate(rows, header, floatfmt=".2f"), "\n")
        print(
            f"At most {upper_bound_device_hours(trials):.1f} device-hours for one attempt at everything: every trial at its "
            f"time limit (timeout_s = {trials[0].timeout_s:g}){searches(trials)}. Retries, such as SLURM's with more time, "
            "come on top. Nothing was started.\n"
        )
        if runs := collectives[name]:
            places = ", ".join(f"{run.launcher}/{run.topology}" for run in runs)
            points = len(runs[0].operations) * len(runs[0].dtypes) * len(runs[0].sizes)
            print(f"Collectives, alone: {points} points of operation, dtype and size on each of {places}.\n")
        for forecast in forecasts[name]:
            print(
                f"Predicted: {forecast.strategy}/{forecast.launcher} on {', '.join(map(str, forecast.targets))}, from "
                f"{len(forecast.trials)} of these trials and {len(forecast.sweep)} more on one device with other batches.\n"
            )
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it as it ends any program: without a word
    sys.exit(main())
