"""What a workload that was calibrated on few devices would do on another machine, or with other settings.

    python scripts/what_if.py results/<experiment>/predictions/calibration.json workflow/topologies/*.yaml

Prints, for each topology file and each combination of settings: where the knee lies, where an epoch is shortest, and what
takes most of the scaling efficiency there. --csv keeps every number of devices.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from dpscale.errors import UserError, entry_point
from dpscale.files import refuse_output, write_atomically
from dpscale.forecasting.calibration_file import Calibrated, read_calibrations
from dpscale.reading import read_keys
from dpscale.scaling_model.calibration import calibrate
from dpscale.scaling_model.machine import Machine
from dpscale.scaling_model.prediction import MIB, Setting
from dpscale.scaling_model.what_if import LEAST_EFFICIENCY, Answer, answers, fastest, knee, placements
from dpscale.typed import validated

MOST_DEVICES = 16_384
MOST_COUNTED = 10**15  # samples of an epoch, say: all whole numbers up to it are exact in floating point
MOST_BUCKETS = 1000  # each is simulated, for every topology and draw


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
    return validated(Machine, read_keys(path, "nodes: 4, as the files of workflow/topologies have them"), str(path))


def read_machines(paths: Sequence[Path]) -> dict[str, Machine]:
    """By the files' names. Raises UserError: as `read_machine`, or two are called alike."""
    by_name: dict[str, Path] = {}
    for path in paths:
        if path.stem in by_name:
            raise UserError(f"{by_name[path.stem]}, {path}: two machines of one name; give one of them another")
        by_name[path.stem] = path
    return {name: read_machine(path) for name, path in by_name.items()}


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


def refuse_many_buckets(calibrated: Calibrated, caps_MiB: Sequence[float]) -> None:
    """Raises UserError: buckets would be too small to be simulated."""
    gradients_MiB = sum(calibrated.measurements.bucket_bytes) / MIB
    for cap_MiB in caps_MiB:
        if gradients_MiB / cap_MiB > MOST_BUCKETS:
            raise UserError(
                f"--bucket-cap-MiB {cap_MiB:g}: more than {MOST_BUCKETS} buckets of {calibrated.strategy}'s {gradients_MiB:.3g} MiB "
                f"of gradients; give at least {gradients_MiB / MOST_BUCKETS:.2g}"
            )


def left_out(setting: Setting, topologies: Sequence[tuple[int, int]]) -> str:
    """Why some numbers of devices have no answer; empty if all have one."""
    nodes, devices_per_node = np.array(topologies).T
    devices = nodes * devices_per_node
    missing = devices[~setting.fits(devices)]
    if not len(missing):
        return ""
    each = "of each device" if setting.scaling == "weak" else "of all devices"
    return (
        f"No answer for {len(missing)} of {len(devices)} numbers of devices (such as {missing[0]}): {setting.batch} samples {each} "
        f"in {setting.accumulation_steps} passes do not come out whole there, or {setting.samples} samples are too few for a step."
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
            line[f"{title}, largest loss"] = "" if answer is None else _loss(answer)
        lines.append(line)
    columns = [
        name for name in lines[0] if name not in lines[0].keys() & rows[0][0].named.keys() or _differ(lines, name)
    ]
    return tabulate([[line[name] for name in columns] for line in lines], columns, disable_numparse=True)


def _differ(lines: list[dict[str, Any]], name: str) -> bool:
    return name == "topology" or len({line[name] for line in lines}) > 1


def _with_interval(answer: Answer) -> str:
    return f"{answer.epoch_time_s:.3g} [{answer.epoch_time_s_low:.3g}, {answer.epoch_time_s_high:.3g}]"


def _loss(answer: Answer) -> str:
    return answer.limited_by + ("" if answer.limited_by_share is None else f" ({100 * answer.limited_by_share:.0f} %)")


def _cost(answer: Answer, price: float | None) -> str:
    return f"{answer.device_hours:.3g} device-h" if price is None else f"{price * answer.device_hours:.3g}"


def write_csv(path: Path, rows: list[tuple[Case, list[Answer]]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*rows[0][0].named, *(field.name for field in fields(Answer)), "cost"])
    for case, answer in ((case, answer) for case, found in rows for answer in found):
        price = case.machine.price_per_device_hour
        cost = None if price is None else price * answer.device_hours
        writer.writerow([*case.named.values(), *asdict(answer).values(), cost])
    write_atomically(path, text.getvalue().encode())


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
        type=_not_negative,
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
    if not 1 <= (value := int(text)) <= MOST_COUNTED:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and {MOST_COUNTED}")
    return value


def _not_negative(text: str) -> float:
    if not 0 <= (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number from 0 on")
    return value


def _positive(text: str) -> float:
    if not 0 < (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return value


def _share(text: str) -> float:
    if not 0 < (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


@entry_point
def main() -> int:
    args = parse()
    if args.csv is not None:
        refuse_output(args.csv, [args.calibration, *args.topologies])
    machines = read_machines(args.topologies)
    rows: list[tuple[Case, list[Answer]]] = []
    reasons: list[str] = []
    for calibrated in read_calibrations(args.calibration):
        refuse_many_buckets(calibrated, args.bucket_cap_mib or [])
        calibration = calibrate(calibrated.measurements, calibrated.seed)
        for setting in settings(calibrated.setting, args):
            for name, machine in machines.items():
                case = Case(calibrated, name, machine, setting)
                topologies = placements_on(machine, args.devices_up_to)
                rows.append((case, answers(calibration, machine.network, setting, topologies)))
                reasons.append(left_out(setting, topologies))
    print(table(rows, args.least_efficiency))
    print(
        f"\nKnee: the most devices at a scaling efficiency of {args.least_efficiency:g}. Intervals: 80 %. Largest loss: "
        "what takes most of the efficiency that one device has, and how much of it."
    )
    for reason in dict.fromkeys(filter(None, reasons)):
        print(reason)
    if args.csv is not None:
        write_csv(args.csv, rows)
    return 0


def placements_on(machine: Machine, most: int) -> list[tuple[int, int]]:
    return placements(min(most, machine.nodes * machine.devices_per_node), machine.devices_per_node)


if __name__ == "__main__":
    sys.exit(main())
