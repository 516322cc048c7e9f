"""Samples of what the ranks, GPUs and CPU packages of a node use, taken beside the ranks: raw readings, no rates.

On each node, under every launcher, local rank 0 starts scripts/sample.py while it prepares the training: a process of
low priority, which nobody waits for. Its readings come back when the steps have ended. Their clock is that of the
intervals in measure.py: the node's monotonic one.
"""

from __future__ import annotations

import json
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import psutil

from dpscale.monitoring.monitor import machine_cpu_seconds_used

SCRIPT = Path(__file__).parents[2] / "sample.py"
KINDS = ("rank", "machine", "monitor", "package", "gpu")  # of readings
POWERCAP = Path("/sys/class/powercap")
LOW_PRIORITY = "10"  # a tenth of a busy core at most, until it has started; at 19 that might last longer than the steps
END_WITHIN_S = 10.0
Reading = dict[str, Any]
Source = Callable[[], list[Reading]]


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What the monitor of one node has seen."""

    readings: list[Reading] = field(default_factory=list)  # columns of monitor.parquet, but for the node
    absent: dict[str, str] = field(default_factory=dict)  # kind of reading, or UUID of one GPU -> why there is none


# In the rank


class Watch:
    """The monitor of this node, from its start until its readings are asked for."""

    def __init__(
        self, pids: Mapping[int, int], uuids: Iterable[str], cpus: Iterable[int], interval_s: float, workers: bool
    ) -> None:
        """Start it.

        Args:
            pids: rank -> its process, of this node's.
            uuids: the GPUs that these use.
            cpus: that any of them may run on.
            workers: whether ranks have child processes whose CPU time is theirs: a loader's.
        """
        command = [
            # before its first import: the ranks may be at their first steps by then
            *(["nice", "-n", LOW_PRIORITY] if shutil.which("nice") else []),
            *(sys.executable, str(SCRIPT), f"--interval-s={interval_s}"),
            *(f"--rank={rank}:{pid}" for rank, pid in pids.items()),
            *(f"--uuid={uuid}" for uuid in uuids),
            f"--cpus={','.join(map(str, cpus))}",
            *(["--workers"] if workers else []),
        ]
        self._output: IO[bytes] = TemporaryFile()  # noqa: SIM115 - read when the monitor has ended
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._output)

    def end(self) -> Watched:
        """End the monitor; its readings, and what it could not read and why."""
        assert self._process.stdin is not None
        self._process.stdin.close()  # which it waits for
        try:
            exitcode = self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            exitcode = self._process.wait()
        self._output.seek(0)
        watched = read_back(self._output)
        self._output.close()
        if exitcode == 0:
            return watched
        return Watched(readings=watched.readings, absent=dict.fromkeys(KINDS, f"the monitor ended with {exitcode}"))


def read_back(lines: Iterable[bytes]) -> Watched:
    """What `sample_until_told` has written; a last line that was cut short does not count."""
    watched = Watched()
    for line in lines:
        if not line.endswith(b"\n"):
            break
        item = json.loads(line)
        if "absent" in item:
            watched.absent[item["kind"]] = item["absent"]
        else:
            watched.readings.append(item)
    return watched


# In the monitor


def sample_until_told(sources: Mapping[str, Source], absent: Mapping[str, str], interval_s: float) -> None:
    """Write a line of JSON per reading to stdout, a round of them every `interval_s`, until stdin is closed: a round at
    once, and a last one at the end."""
    for kind, reason in absent.items():
        print(json.dumps({"kind": kind, "absent": reason}))
    told, due_s = False, time.perf_counter()
    while True:
        for kind, read in sources.items():
            now_s = time.perf_counter()
            for reading in read():
                print(json.dumps({"time_s": now_s, "kind": kind, **reading}))
        sys.stdout.flush()
        if told:
            return
        due_s += interval_s
        if (left_s := due_s - time.perf_counter()) < 0:  # held up: no rounds are made up for
            due_s, left_s = due_s - left_s + interval_s, interval_s
        told = bool(select.select([sys.stdin], [], [], left_s)[0])


def sources_of(
    pids: Mapping[int, int], uuids: list[str], cpus: list[int], workers: bool
) -> tuple[dict[str, Source], dict[str, str]]:
    """(kind -> what reads it, kind or a GPU's UUID -> why it can't be read), on this node."""
    processes = {rank: psutil.Process(pid) for rank, pid in pids.items()}  # kept: /proc is opened, not searched
    monitor = psutil.Process()
    sources: dict[str, Source] = {
        "rank": lambda: [
            found
            for rank, process in processes.items()
            for found in _of_rank(rank, process, _workers_of(process, monitor) if workers else [])
        ],
        "machine": lambda: [{"name": "all processes", "cpu_time_s": machine_cpu_seconds_used(cpus)}],
        "monitor": lambda: [{"name": "monitor", "cpu_time_s": time.process_time()}],
    }
    absent: dict[str, str] = {}
    packages, reason = readable_packages(POWERCAP)
    if reason is None:
        sources["package"] = lambda: [_of_package(package) for package in packages]
    else:
        absent["package"] = reason
    if uuids:
        from dpscale.monitoring.nvml import Gpus

        try:
            gpus = Gpus(uuids)
            sources["gpu"] = gpus.readings
            absent |= gpus.absent
        except RuntimeError as error:
            absent["gpu"] = str(error)
    else:
        absent["gpu"] = "no GPU is used"
    return sources, absent


def _of_rank(rank: int, process: psutil.Process, workers: list[psutil.Process]) -> list[Reading]:
    """CPU time so far of a rank and its workers, and its resident memory. Nothing, once one of them has just ended."""
    try:
        used = process.cpu_times()
        of_workers = sum(sum(worker.cpu_times()[:2]) for worker in workers)  # of live ones: the ended are in the rank's
        return [
            {"name": str(rank), "cpu_time_s": sum(used[:4]) + of_workers, "memory_bytes": process.memory_info().rss}
        ]
    except psutil.NoSuchProcess:
        return []


def _workers_of(process: psutil.Process, monitor: psutil.Process) -> list[psutil.Process]:
    """Child processes of a rank, but for the monitor. It searches /proc, which takes longer than the rest of a round."""
    try:
        return [child for child in process.children() if child.pid != monitor.pid]
    except psutil.NoSuchProcess:
        return []


def readable_packages(folder: Path) -> tuple[list[Path], str | None]:
    """(CPU packages whose energy RAPL counts, None), or none and why. Parts of a package, such as its cores, are in it."""
    packages = [path for path in sorted(folder.glob("*-rapl:*")) if path.name.count(":") == 1]
    if not packages:
        return [], f"no RAPL: {folder} has no CPU package"
    for package in packages:
        try:
            _of_package(package)
        except OSError as error:
            return [], f"RAPL: {package / 'energy_uj'}: {error.strerror}"
    return packages, None


def _of_package(package: Path) -> Reading:
    """The energy counter of a CPU package; it begins again at its range."""
    return {
        "name": f"{package.name} {(package / 'name').read_text().strip()}",
        "energy_j": int((package / "energy_uj").read_text()) / 1e6,
        "energy_range_j": int((package / "max_energy_range_uj").read_text()) / 1e6,
    }
