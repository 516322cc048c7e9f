"""What a workload that was calibrated on few devices would do on another machine, or with other settings.

    python scripts/what_if.py results/<experiment>/predictions/calibration.json workflow/topologies/*.yaml

Prints, for each topology file and each combination of settings: where the knee lies, where an epoch is shortest, and what
limits it. --csv keeps every number of devices.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

from dpscale.errors import UserError, entry_point
from dpscale.forecasting.calibration_file import Calibrated, read_calibrations
from dpscale.scaling_model.calibration import Calibration, calibrate
from dpscale.scaling_model.machine import Machine
from dpscale.scaling_model.prediction import Setting
from dpscale.scaling_model.what_if import LEAST_EFFICIENCY, Answer, answers, fastest, knee, placements
from dpscale.typed import validated

MOST_DEVICES = 16_384


@dataclass(frozen=True)
class Case:
    """A calibrated strategy, a machine and a setting of its own."""

    calibrated: Calibrated
    machine_name: str
    machine: Machine
    setting: Setting

    @property
    def named(self) -> dict[str, Any]:
        return {
            "strategy": self.calibrated.strategy,
            "launcher": self.calibrated.launcher,
            "topology": self.machine_name,
            "batch": self.setting.batch,
            "accumulation_steps": self.setting.accumulation_steps,
            "bytes_factor": self.setting.bytes_factor,
            "bucket_cap_MiB": self.setting.bucket_cap_MiB,
            "local_sgd_period": self.setting.local_sgd_period,
        }


def read_machine(path: Path) -> Machine:
    """Raises UserError: no such file, or not a topology as machine.py types it."""
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path}: {error}; give a topology file such as those of workflow/topologies") from None
    return validated(Machine, data if isinstance(data, dict) else {}, str(path))


def settings(base: Setting, args: argparse.Namespace) -> Iterator[Setting]:
    """Every combination of what was asked for; what was not is as it was measured."""
    for batch, cap, period, factor, passes in itertools.product(
        args.batch or [base.batch],
        args.bucket_cap_mib or [None],
        args.local_sgd_period or [None],
        args.bytes_factor,
        args.accumulation_steps,
    ):
        yield replace(
            base,
            batch=batch,
            scaling=args.scaling or base.scaling,
            samples=args.samples or base.samples,
            bucket_cap_MiB=cap,
            local_sgd_period=period,
            bytes_factor=factor,
            compression_s_per_byte=args.compression_s_per_byte if factor < 1 else 0.0,
            accumulation_steps=passes,
        )


def table(rows: list[tuple[Case, list[Answer]]], least_efficiency: float) -> str:
    """A line for each case; columns of settings in which all agree are left out."""
    lines = []
    for case, found in rows:
        price = case.machine.price_per_device_hour
        line = dict(case.named)
        for title, answer in (("knee", knee(found, least_efficiency)), ("fastest", fastest(found) if found else None)):
            line[f"{title}, devices"] = "none" if answer is None else answer.devices
            line[f"{title}, epoch s"] = "" if answer is None else _with_interval(answer)
            line[f"{title}, cost"] = "" if answer is None else _cost(answer, price)
            line[f"{title}, limit"] = "" if answer is None else answer.limited_by
        lines.append(line)
    columns = [
        name for name in lines[0] if name not in lines[0].keys() & rows[0][0].named.keys() or _differ(lines, name)
    ]
    return tabulate([[line[name] for name in columns] for line in lines], columns, disable_numparse=True)


def _differ(lines: list[dict[str, Any]], name: str) -> bool:
    return name == "topology" or len({line[name] for line in lines}) > 1


def _with_interval(answer: Answer) -> str:
    return f"{answer.epoch_time_s:.3g} [{answer.epoch_time_s_low:.3g}, {answer.epoch_time_s_high:.3g}]"


def _cost(answer: Answer, price: float | None) -> str:
    return f"{answer.device_hours:.3g} device-h" if price is None else f"{price * answer.device_hours:.3g}"


def write_csv(path: Path, rows: list[tuple[Case, list[Answer]]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        for number, (case, answer) in enumerate((case, answer) for case, found in rows for answer in found):
            price = case.machine.price_per_device_hour
            line = {**case.named, **asdict(answer), "cost": None if price is None else price * answer.device_hours}
            if number == 0:
                writer.writerow(line)
            writer.writerow(line.values())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibration", type=Path, help="calibration.json of an experiment's predictions")
    parser.add_argument("topologies", type=Path, nargs="+", help="topology files, such as workflow/topologies/*.yaml")
    parser.add_argument("--devices-up-to", type=_count, default=MOST_DEVICES, help="at most so many (default 16384)")
    parser.add_argument("--batch", type=_count, nargs="+", help="samples per step: of each device, or of all if strong")
    parser.add_argument("--scaling", choices=["weak", "strong"], help="whose batch that is; default: as measured")
    parser.add_argument("--samples", type=_count, help="of an epoch; default: as measured")
    parser.add_argument(
        "--accumulation-steps", type=_count, nargs="+", default=[1], help="passes that share an exchange"
    )
    parser.add_argument(
        "--bytes-factor", type=_share, nargs="+", default=[1.0], help="of compressed gradients, such as 0.5"
    )
    parser.add_argument(
        "--compression-s-per-byte",
        type=float,
        default=0.0,
        help="cost of compressing and restoring a byte of gradients",
    )
    parser.add_argument(
        "--bucket-cap-MiB", dest="bucket_cap_mib", type=_positive, nargs="+", help="size of DDP's buckets"
    )
    parser.add_argument("--local-sgd-period", type=_count, nargs="+", help="steps between averages of the weights")
    parser.add_argument(
        "--least-efficiency", type=_share, default=LEAST_EFFICIENCY, help="that the knee has (default 0.5)"
    )
    parser.add_argument("--csv", type=Path, help="a file for every number of devices")
    return parser.parse_args()


def _count(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _positive(text: str) -> float:
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _share(text: str) -> float:
    if not 0 < (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


@entry_point
def main() -> int:
    args = parse()
    machines = {path.stem: read_machine(path) for path in args.topologies}
    rows: list[tuple[Case, list[Answer]]] = []
    for calibrated in read_calibrations(args.calibration):
        calibration = calibrate(calibrated.measurements, calibrated.seed)
        for setting in settings(calibrated.setting, args):
            for name, machine in machines.items():
                case = Case(calibrated, name, machine, setting)
                rows.append((case, _answers(calibration, case, args.devices_up_to)))
    print(table(rows, args.least_efficiency))
    print(f"\nKnee: the most devices at a scaling efficiency of {args.least_efficiency:g}. Intervals: 80 %.")
    if args.csv is not None:
        write_csv(args.csv, rows)
    return 0


def _answers(calibration: Calibration, case: Case, most: int) -> list[Answer]:
    machine = case.machine
    most = min(most, machine.nodes * machine.devices_per_node)
    topologies = placements(most, machine.devices_per_node)
    return answers(calibration, machine.network, case.setting, topologies)


if __name__ == "__main__":
    sys.exit(main())
