"""Search the largest batch per device that a cell's ranks can train with, and leave it as largest.json.

This is what the `largest_batch` rule runs before a cell's trials. Each try is a launch of its own: some steps with the
optimiser's update, and an evaluation. What ends a try other than a device's memory ends the search.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpscale import largest
from dpscale.code import SCRIPTS, search_code
from dpscale.errors import UserError
from dpscale.launching import attempt, launches
from dpscale.launching.history import FOLDER, History, identity_of
from dpscale.record import RECORD, Record
from dpscale.trial import Trial
from dpscale.workloads.prepared import read_manifest

Launch = Callable[[Trial], tuple[Record | None, str]]  # a try -> its record, or None and the error: out of memory


class Unavailable(Exception):
    """The trial can't run on this machine at all, whatever its batch."""

    def __init__(self, record: Record) -> None:
        self.record = record


def search(probe: Trial, counts: dict[str, int], launch: Launch, say: Callable[[str], None]) -> largest.Search:
    """The search for one cell.

    Args:
        probe: `largest.probe_of` a trial of the cell.
        counts: samples of the prepared dataset, by split.

    Raises:
        UserError: a try failed for another reason than memory, not even the smallest batch fits, or there are too few
            samples for it.
    """
    limit = min(probe.train_samples or counts["train"], counts["train"]) // probe.devices
    parts = largest.parts_of(probe)
    if limit < parts:
        raise UserError(f"{limit} training samples per device do not fill one batch of accumulation_steps={parts}")
    tries: list[largest.Try] = []
    environment: dict[str, Any] = {}

    def fits(batch: int) -> bool:
        # one batch of the test set is enough: evaluation keeps nothing between two
        test_samples = min(probe.test_samples or counts["test"], counts["test"], batch * probe.devices)
        record, error = launch(replace(probe, batch_size_per_device=batch, test_samples=test_samples))
        if record is None:
            tries.append(_too_large(batch, error))
        elif record.status != "ok":
            raise Unavailable(record)
        else:
            environment.update(record.environment)
            tries.append(_fitting(batch, record))
        say(_described(tries[-1]))
        return record is not None

    try:
        found = largest.largest_that_fits(fits, largest.FIRST_TRY, limit, largest.PRECISION_PERCENT, parts)
    except Unavailable as unavailable:
        record = unavailable.record
        return largest.Search(
            probe=probe,
            status="unavailable",
            reason=record.reason,
            fits=None,
            limit=limit,
            environment=record.environment,
        )
    except largest.NothingFits as nothing:
        raise UserError(
            f"{nothing}: {tries[-1].reason}; use a smaller model, or more devices to split it over"
        ) from None
    return largest.Search(
        probe=probe, status="ok", reason=None, fits=found, limit=limit, tries=tries, environment=environment
    )


def _too_large(batch: int, error: str) -> largest.Try:
    return largest.Try(
        batch_size_per_device=batch,
        fits=False,
        reason=error,
        peak_allocated_bytes=None,
        peak_reserved_bytes=None,
        peak_memory_bytes=None,
    )


def _fitting(batch: int, record: Record) -> largest.Try:
    def peak(kind: str) -> int | None:
        values = [getattr(facts, f"peak_{kind}_bytes") for facts in record.ranks]
        return None if None in values else max(values)

    return largest.Try(
        batch_size_per_device=batch,
        fits=True,
        reason=None,
        peak_allocated_bytes=peak("allocated"),
        peak_reserved_bytes=peak("reserved"),
        peak_memory_bytes=peak("memory"),
    )


def _described(tried: largest.Try) -> str:
    if not tried.fits:
        return f"{tried.batch_size_per_device} per device: does not fit"
    reserved = tried.peak_reserved_bytes
    return f"{tried.batch_size_per_device} per device: fits" + (
        f", {reserved / 2**20:.0f} MiB reserved at the peak" if reserved is not None else ""
    )


def launcher(data: Path, drafts: Path, logs: Path) -> Launch:
    """Tries as real launches, each with its own log. However this process ends, a launch ends before it."""

    def launch(trial: Trial) -> tuple[Record | None, str]:
        name = str(trial.batch_size_per_device)
        command = [
            *(sys.executable, str(SCRIPTS / "launch.py"), f"--data={data}", f"--folder={drafts / name}"),
            *(f"--log={logs / name}.log", "--end-with-parent", *trial.to_args()),
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            _, said = process.communicate()
        except BaseException:
            process.terminate()  # launch.py then ends its ranks in order
            process.communicate()
            raise
        if process.returncode == attempt.OUT_OF_MEMORY:
            return None, said.splitlines()[0]
        if process.returncode != 0:
            raise UserError(f"the try of {name} per device failed: {said.strip()}")
        return Record.read(drafts / name / RECORD), ""

    return launch


def measure(probe: Trial, args: argparse.Namespace, log: launches.Log) -> str:
    """The search for one cell, left in `folder`; returns a line that says how it went.

    Raises:
        UserError: as `search` says, or it was not over in time.
    """
    signal.signal(signal.SIGALRM, attempt.interrupt)
    signal.alarm(math.ceil(probe.search_timeout_s))
    data, folder = args.data.absolute(), args.folder.absolute()
    code = search_code(probe.base, probe.model, probe.launcher)

    def say(text: str) -> None:
        print(f"{_name(probe)}: {text}", flush=True)
        log.write(text)

    try:
        with attempt.locked(folder) as drafts:
            history = History(folder / FOLDER, identity_of(probe, code))
            with launches.attempted(history, log):
                launch = launcher(data, drafts, _logs_of_tries(folder, len(history.attempts)))
                found = search(probe, read_manifest(data).counts, launch, say)
            found.write(folder)
            history.clear()
            log.end_last_attempt()
    except attempt.Interrupted as interrupted:
        if interrupted.number != signal.SIGALRM:
            raise
        limit = f"{probe.search_timeout_s:g} s, four times timeout_s={probe.timeout_s:g}"
        raise UserError(f"the largest batch is not found after {limit}; raise timeout_s") from None
    return found.reason or f"{found.fits} samples per device fit"


def _logs_of_tries(folder: Path, number: int) -> Path:
    """A folder for each attempt at the search, as each has a log; those of a search before this one go."""
    if number == 1:
        shutil.rmtree(folder / "tries", ignore_errors=True)
    return folder / "tries" / f"attempt-{number}"


def _name(probe: Trial) -> str:
    return f"{probe.experiment}/{probe.cell}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--folder", type=Path, required=True, help="where largest.json and the logs of tries go")
    parser.add_argument("--log", type=Path, required=True, help="what is said of the search")
    parser.add_argument("--end-with-parent", action="store_true", help="end when what started this is killed")
    Trial.add_arguments(parser)
    args = parser.parse_args()
    probe, log = largest.probe_of(Trial.from_args(args)), launches.Log(args.log)
    return launches.to_its_end(_name(probe), lambda: measure(probe, args, log), args, log)


if __name__ == "__main__":
    sys.exit(main())
