"""What the project costs, as ratios of interleaved pairs, and what it learns: its loop, monitor,
strategies, loaders, times of collectives, dry run, start-up, what the causes of a step leave unexplained, and how long a
question about larger machines and the explorer of many trials take.

    python tests/bench/run.py                every bench, at least 5 pairs each: some 35 minutes on 2 cores
    python tests/bench/run.py loop           one of them
    python tests/bench/run.py --smallest     each in its smallest form: shows that they work, says nothing

Raw figures go into results/bench/<date>.json, with the commit, the machine and its load. Use a quiet machine.
Exit code: 0, goals met or not, since a goal can be missed for a noisy neighbour; 1 if a bench crashed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common import REPOSITORY, Comparison, NotHere, Settings
from tabulate import tabulate

from dpscale.environment import describe_machine

BENCHES = (
    "loop",
    "monitor",
    "strategies",
    "half",
    "textbook",
    "loaders",
    "collectives",
    "dry_run",
    "startup",
    "job_start",
    "accuracy",
    "explain",
    "larger_machines",
    "explorer",
)
SMALLEST = {"pairs": 1, "steps": 3, "samples": 512, "trials": 10, "learns_from": 512}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", metavar="bench", help=f"which of {', '.join(BENCHES)}; default: all")
    parser.add_argument("--pairs", type=int, default=5, help="interleaved pairs of each comparison")
    parser.add_argument("--steps", type=int, default=50, help="loop: steps of one side of a pair")
    parser.add_argument(
        "--samples", type=int, default=12_032, help="textbook and loaders: samples per epoch; all would be 59,904"
    )
    parser.add_argument("--trials", type=int, default=5_000, help="dry_run and explorer: how many there are")
    parser.add_argument("--learns-from", type=int, default=60_000, help="accuracy: training samples; 60,000 are all")
    parser.add_argument("--smallest", action="store_true", help="each bench in its smallest form")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "results" / "bench", help="folder of the raw figures")
    args = parser.parse_args()
    if unknown := set(args.benches) - set(BENCHES):
        parser.error(f"no bench {', '.join(sorted(unknown))}; choose from {', '.join(BENCHES)}")
    sizes = SMALLEST if args.smallest else {name: getattr(args, name) for name in SMALLEST}

    began = datetime.now(timezone.utc)
    raw: dict[str, Any] = {
        "began_at": began.isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": describe_machine("cpu"),
        "sizes": sizes,
        "benches": {},
    }
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{began:%Y-%m-%dT%H-%M-%S}.json"
    comparisons: list[Comparison] = []
    crashed = False
    for name in args.benches or BENCHES:
        result = run_bench(name, sizes)
        comparisons += result["comparisons"]
        crashed |= result["status"] == "crashed"
        raw["benches"][name] = {**result, "comparisons": [found.as_dict() for found in result["comparisons"]]}
        path.write_text(json.dumps(raw, indent=1, allow_nan=False) + "\n")
    print(table(comparisons))
    for name, result in raw["benches"].items():
        if result["status"] != "ok":
            print(f"{name}: {result['status']}: {result['reason']}")
    print(f"raw figures: {os.path.relpath(path)}")
    return int(crashed)


def run_bench(name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Status, reason, load before and after, and the comparisons that were made until it ended or crashed."""
    result: dict[str, Any] = {"status": "ok", "reason": None, "load_average_before": os.getloadavg(), "comparisons": []}
    print(f"{name} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix=f"dpscale-bench-{name}-") as folder:
        try:
            for comparison in importlib.import_module(name).run(Settings(folder=Path(folder), **sizes)):
                result["comparisons"].append(comparison)
                print(f"  {line(comparison)}", file=sys.stderr, flush=True)
        except NotHere as missing:
            result |= {"status": "not run", "reason": str(missing)}
        except Exception as error:  # noqa: BLE001 - the other benches run all the same, and the exit code tells
            traceback.print_exc()
            result |= {"status": "crashed", "reason": f"{type(error).__name__}: {error}"}
    return {**result, "load_average_after": os.getloadavg()}


def columns(comparison: Comparison) -> list[str]:
    unit = f" {comparison.unit}" if comparison.unit else ""
    low, high = min(comparison.values), max(comparison.values)
    return [
        comparison.name,
        f"{comparison.median:.3f}{unit}",
        f"{low:.3f} - {high:.3f}",
        str(len(comparison.pairs)),
        f"{comparison.goal_is} {comparison.goal:g}{unit}",
        "met" if comparison.met else "MISSED",
    ]


def line(comparison: Comparison) -> str:
    name, median, spread, pairs, goal, met = columns(comparison)
    return f"{name}: {median} ({spread}, {pairs} pairs), goal {goal}: {met}"


def table(comparisons: list[Comparison]) -> str:
    headers = ["what", "median", "min - max", "pairs", "goal", ""]
    return tabulate([columns(comparison) for comparison in comparisons], headers, disable_numparse=True)


def commit() -> str | None:
    """The commit, with -dirty if files differ from it; None outside a checkout."""
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
