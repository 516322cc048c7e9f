"""What ranks and their machine use while they train: CPU time, memory, and GPU utilisation through NVML."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLING_INTERVAL_S = 0.2


def cpu_seconds_used() -> float:
    """CPU time of this process, its threads and its ended children, so far. Not sampled: the kernel keeps it."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def machine_cpu_seconds_used() -> float:
    """CPU time that all processes of this machine, and other machines on the same processors (steal), used so far of the
    CPUs that this process may run on."""
    every_cpu = psutil.cpu_times(percpu=True)
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(every_cpu))
    return sum(
        getattr(times, name, 0.0)
        for cpu, times in enumerate(every_cpu)
        if cpu in mine
        for name in ("user", "nice", "system", "irq", "softirq", "steal")
    )


def peak_memory_bytes() -> int:
    """This process's largest resident set. Shared pages, such as those of a mapped dataset, count in every rank.

    From VmHWM: ru_maxrss would hold the peak of whoever started the process. Where there is no /proc, it is ru_maxrss.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS, in bytes


@dataclass
class CpuUsage:
    """CPU seconds used inside the timed intervals only."""

    rank_s: float = 0.0
    machine_s: float = 0.0

    @contextmanager
    def counted(self, count: bool) -> Iterator[None]:
        """Add what is used inside the block, if `count`."""
        rank_s, machine_s = cpu_seconds_used(), machine_cpu_seconds_used()
        yield
        if count:
            self.rank_s += cpu_seconds_used() - rank_s
            self.machine_s += machine_cpu_seconds_used() - machine_s


@dataclass(frozen=True)
class GpuSample:
    monotonic_s: float
    uuid: str
    utilization_percent: int  # share of the last sampling period in which any kernel ran: not how full the GPU was
    memory_used_bytes: int  # of all processes, contexts included
    power_w: float | None


class GpuSampler:
    """Samples every GPU of this machine beside the ranks, from a thread of the launching process.

    NVML's indices ignore CUDA_VISIBLE_DEVICES and what a scheduler hides, so devices are told apart by UUID.
    """

    def __init__(self, interval_s: float = SAMPLING_INTERVAL_S) -> None:
        self.samples: list[GpuSample] = []
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> GpuSampler:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return  # no driver: utilisation stays absent, and the record says so
        handles = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            handles[_text(pynvml.nvmlDeviceGetUUID(handle))] = handle
        while not self._stop.wait(self._interval_s):
            for uuid, handle in handles.items():
                try:
                    utilization_percent = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu
                    memory_used_bytes = pynvml.nvmlDeviceGetMemoryInfo(handle).used
                except pynvml.NVMLError:
                    continue  # such as in MIG mode: this device's utilisation stays absent
                try:
                    power_w = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
                except pynvml.NVMLError:
                    power_w = None  # not every board measures it
                self.samples.append(
                    GpuSample(time.perf_counter(), uuid, utilization_percent, memory_used_bytes, power_w)
                )
        pynvml.nvmlShutdown()

    def mean_utilization(self, windows_s: Iterable[tuple[float, float]]) -> dict[str, float]:
        """UUID -> mean utilisation in percent of the samples inside the windows; devices without one are left out."""
        windows = list(windows_s)
        inside: dict[str, list[int]] = {}
        for sample in self.samples:
            if any(start <= sample.monotonic_s <= end for start, end in windows):
                inside.setdefault(sample.uuid, []).append(sample.utilization_percent)
        return {uuid: sum(values) / len(values) for uuid, values in inside.items()}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def usable_cpus() -> int:
    """CPUs that this process may run on: its affinity mask, and a container's quota rounded down."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.exists():
        allowed, period = quota.read_text().split()
        if allowed != "max":
            return max(1, min(affinity, int(allowed) // int(period)))
    return affinity
