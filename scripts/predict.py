"""Trials on few devices -> what more would take: calibration.json, and a line for each topology in the ledger beside it.

Larger trials are not read. The ledger is no output of the rule: Snakemake would delete it first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from dpscale import own
from dpscale.code import digest_of
from dpscale.collectives.run import FILE as COLLECTIVES
from dpscale.collectives.run import Result, Run, read_times
from dpscale.config import load_config
from dpscale.errors import UserError, entry_point
from dpscale.files import sha256_of
from dpscale.forecasting.calibration_file import FILE, Calibrated, write_calibrations
from dpscale.forecasting.forecasts import Forecast, plan_forecasts
from dpscale.forecasting.ledger import LEDGER, Entry, Interval, append_predictions, read_ledger, refuse_lost
from dpscale.forecasting.measured_parts import Measured, measurements_of
from dpscale.planning.collectives import plan_collectives
from dpscale.planning.plan import plan_trials
from dpscale.record import RECORD, Record, read_steps
from dpscale.scaling_model.baselines import baseline_epoch_times_s
from dpscale.scaling_model.calibration import INTERVALS_PERCENT, Calibration, calibrate
from dpscale.scaling_model.laws import LAWS
from dpscale.scaling_model.losses import largest_losses, scaling_efficiency
from dpscale.scaling_model.measurements import Exchange
from dpscale.scaling_model.prediction import PARTS, Setting, predict
from dpscale.tables.collectives import times_of_a_call_s
from dpscale.trial import Trial
from dpscale.workloads.prepared import check_limit, read_manifest


def measured(trials: Sequence[Trial], results: Path) -> list[Measured]:
    """Raises UserError: a trial was not measured, or could not be."""
    found: list[Measured] = []
    for trial in trials:
        path = results / trial.folder / RECORD
        record = Record.read(path)
        if record.status != "ok":
            raise UserError(f"prediction: {path} is {record.status}: {record.reason}; it can't be calibrated from")
        if record.trial != trial:
            raise UserError(f"{path}: its record is of another configuration; run the same command again")
        table = read_steps(path)
        found.append((record, {name: table[name].to_numpy() for name in table.column_names}))
    return found


def exchanges_of(runs: Sequence[Run], results: Path) -> Iterator[Exchange]:
    """Medians of all-reduces alone, of the first dtype that was timed."""
    for run in runs:
        path = results / run.folder / COLLECTIVES
        if Result.read(path).status != "ok":
            continue
        times = read_times(path)
        times = times[(times.operation == "all_reduce") & (times.dtype == run.dtypes[0])]
        for _, mine in times.groupby("size_bytes"):
            values = times_of_a_call_s(mine)
            yield Exchange(
                nodes=run.nodes,
                devices_per_node=run.devices_per_node,
                nbytes=int(mine.size_bytes.iloc[0]),
                time_s=float(np.median(values)),
                values=len(values),
            )


def calibrated(forecast: Forecast, results: Path, data: Path) -> tuple[Calibrated, Calibration]:
    first = forecast.trials[0]
    found = measurements_of(
        measured(forecast.trials, results),
        measured(forecast.sweep, results),
        list(exchanges_of(forecast.exchanges, results)),
    )
    calibration = calibrate(found, first.seed)
    batch = first.batch_size_per_device if first.scaling == "weak" else first.global_batch_size
    assert batch is not None
    setting = Setting(
        samples=check_limit(read_manifest(data / own.folder_name(first.dataset)), "train", first.train_samples),
        batch=batch,
        scaling="weak" if first.scaling == "weak" else "strong",
        drop_last=True,
    )
    return (
        Calibrated(
            strategy=forecast.strategy,
            launcher=forecast.launcher,
            seed=first.seed,
            setting=setting,
            measurements=found,
            estimates=estimates(calibration),
        ),
        calibration,
    )


def estimates(calibration: Calibration) -> dict[str, Any]:
    """What was calibrated, for readers of calibration.json: each with its 80 % interval."""

    def of(values: np.ndarray) -> dict[str, float]:
        low, high = np.percentile(values[1:], [10, 90])
        return {"value": float(values[0]), "low": float(low), "high": float(high)}

    profile, network = calibration.profile, calibration.network
    single = {name: getattr(profile, name) for name in ("fixed_s", "per_sample_s", "stretch", "epoch_fixed_s")}
    single |= {name: np.asarray(values) for name, values in vars(network).items() if name != "efficiency"}
    contention = {
        f"contention_share_at_{int(place)}": shares
        for place, shares in zip(profile.contention_at, profile.contention_share.T, strict=True)
    }
    return {name: of(values) for name, values in (single | contention).items()}


def entries(
    forecast: Forecast,
    made: Calibrated,
    calibration: Calibration,
    facts: dict[str, Any],
) -> list[Entry]:
    """One for each target that has a sample for each of its devices."""
    setting = made.setting
    targets = [target for target in forecast.targets if setting.fits(np.array([target.devices]))[0]]
    for target in targets:
        calibration.refuse_unmeasured(target.nodes, target.devices_per_node)
    nodes, devices_per_node = (
        np.array([getattr(one, name) for one in targets]) for name in ("nodes", "devices_per_node")
    )
    found = predict(calibration.profile, calibration.network, setting, nodes, devices_per_node)
    intervals = {percent: calibration.interval(found, percent) for percent in INTERVALS_PERCENT}
    baselines = baseline_epoch_times_s(LAWS, made.measurements.launches, setting, nodes * devices_per_node)
    losses = largest_losses(calibration.profile, calibration.network, setting, found)
    efficiency = scaling_efficiency(calibration.profile, calibration.network, setting, found)
    return [
        Entry(
            **facts,
            strategy=forecast.strategy,
            same=forecast.same,
            base=forecast.trials[0].base,
            launcher=forecast.launcher,
            nodes=target.nodes,
            devices_per_node=target.devices_per_node,
            configuration=forecast.trials[0].configuration,
            setting=asdict(setting),
            epoch_time_s=float(found.epoch_time_s[0, place]),
            intervals={
                str(percent): Interval(low=float(low[place]), high=float(high[place]))
                for percent, (low, high) in intervals.items()
            },
            scaling_efficiency=float(efficiency[place]),
            steps=float(found.steps[place]),
            parts={name: float(getattr(found, name)[0, place]) for name in PARTS},
            epoch_fixed_s=float(found.epoch_fixed_s[0, place]),
            limited_by=losses[place].name,
            limited_by_share=losses[place].share,
            baselines={law: float(times[place]) for law, times in baselines.items()},
        )
        for place, target in enumerate(targets)
    ]


def inputs_of(forecasts: Sequence[Forecast], results: Path) -> dict[str, str]:
    """Below the results folder -> sha256."""
    paths = [one.folder / RECORD for forecast in forecasts for one in [*forecast.trials, *forecast.sweep]]
    paths += [run.folder / COLLECTIVES for forecast in forecasts for run in forecast.exchanges]
    missing = [path for path in dict.fromkeys(paths) if not (results / path).exists()]
    if missing:
        raise UserError(
            f"{results / missing[0]}: missing; run snakemake: a prediction needs all that it is calibrated from"
        )
    return {str(path): sha256_of(results / path) for path in dict.fromkeys(paths)}


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("--config", type=json.loads, required=True, help="the configuration, as JSON")
    parser.add_argument("--results", type=Path, required=True, help="the results folder")
    parser.add_argument("--data", type=Path, required=True, help="the folder of prepared datasets")
    parser.add_argument("--out", type=Path, required=True, help="folder for calibration.json and the ledger")
    args = parser.parse_args()
    config = load_config(args.config)
    plans, runs = plan_trials(config), plan_collectives(config)
    forecasts = plan_forecasts(config, plans, runs)[args.experiment]
    code = digest_of(("predict.py",))
    up_to = config.experiments[args.experiment].prediction.calibrate_up_to
    refuse_lost(args.out)
    made, lines = [], []
    for forecast in forecasts:
        inputs = inputs_of([forecast], args.results)
        one, calibration = calibrated(forecast, args.results, args.data)
        made.append(one)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        facts = {"predicted_at": now, "code": code, "inputs": inputs, "calibrated_up_to": up_to}
        lines += entries(forecast, one, calibration, facts)
    new = append_predictions(args.out / LEDGER, lines)
    facts = {"experiment": args.experiment, "calibrated_up_to": up_to, "code": code}
    facts["ledger"] = read_ledger(args.out / LEDGER).digests[-1]
    write_calibrations(args.out / FILE, made, {**facts, "inputs": inputs_of(forecasts, args.results)})
    print(f"{len(new)} new predictions of {len(lines)}, in {args.out / LEDGER}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
