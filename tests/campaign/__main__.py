"""Run an experiment of 12 trials under the faults of one seed after another: exactly its 12 records must come of it.

    python -m campaign --seeds=20           seeds 0 to 19: one to two minutes each on two quiet cores
    python -m campaign --first=7            seed 7 alone

What struck, and what was wrong, goes into results/campaign/<date>.json; logs of seeds with problems are kept beside it.
Exit code: 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from pipeline import ROOT
from tabulate import tabulate

from campaign.injector import may_mount
from campaign.plan import ON_A_FULL_DISK
from campaign.run import Outcome, run_seed, undisturbed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "campaign", help="folder of the report")
    args = parser.parse_args()
    # in order: what was started is ended, and what was mounted is unmounted
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    began = datetime.now(timezone.utc)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{began:%Y-%m-%dT%H-%M-%S}.json"
    left_out = [] if may_mount() else sorted(ON_A_FULL_DISK)
    if left_out:
        print(f"left out, as mounting a small disk takes root: {', '.join(left_out)}")
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="dpscale-campaign-") as folder:
        expected = undisturbed(Path(folder) / "undisturbed")
        print(f"undisturbed: {expected.wall_s:.0f} s", flush=True)
        for seed in range(args.first, args.first + args.seeds):
            outcomes.append(run_seed(seed, Path(folder) / f"seed-{seed}", expected))
            print(line(outcomes[-1]), flush=True)
            if outcomes[-1].problems:
                shutil.copytree(Path(folder) / f"seed-{seed}-logs", path.with_suffix("") / f"seed-{seed}")
            report = {
                "began_at": began.isoformat(timespec="seconds"),
                "undisturbed_wall_s": expected.wall_s,
                "left_out": left_out,
                "seeds": [asdict(outcome) for outcome in outcomes],
            }
            path.write_text(json.dumps(report, indent=1) + "\n")
    print(table(outcomes))
    print(f"report: {os.path.relpath(path)}")
    return int(any(outcome.problems for outcome in outcomes))


def line(outcome: Outcome) -> str:
    return f"seed {outcome.seed}: {'ok' if not outcome.problems else '; '.join(outcome.problems)}"


def table(outcomes: list[Outcome]) -> str:
    """A row for each round of each seed."""
    rows = [
        [
            outcome.seed if number == 0 else "",
            round_.fault or "undisturbed",
            round_.struck or ("" if round_.fault is None else "was over before"),
            "\n".join(round_.damages),
            round_.returncode,
            f"{round_.wall_s:.0f}",
            "" if number else f"{outcome.wall_s:.0f} s: {len(outcome.problems)} problems",
        ]
        for outcome in outcomes
        for number, round_ in enumerate(outcome.rounds)
    ]
    return tabulate(rows, ["seed", "fault", "struck", "before it", "exit", "s", "in all"], disable_numparse=True)


if __name__ == "__main__":
    sys.exit(main())
