"""What a rank and its machine use, as the kernel counts it: CPU time, memory, CPUs. Read by the rank itself; see sampling.py."""

from __future__ import annotations

import os
import resource
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil


def cpu_seconds_used() -> float:
    """CPU time of this process, its threads and its ended children, so far. Not sampled: the kernel keeps it."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def affinity() -> list[int]:
    """The CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def machine_cpu_seconds_used(cpus: Collection[int]) -> float:
    """CPU time that all processes of this machine, and other machines on the same processors (steal), used of these CPUs
    so far."""
    return sum(
        getattr(times, name, 0.0)
        for cpu, times in enumerate(psutil.cpu_times(percpu=True))
        if cpu in cpus
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


def proportional_memory_bytes() -> int | None:
    """This process's resident memory now, each shared page divided by the number of processes that share it (PSS), so that
    it adds up over ranks. None where the kernel does not tell. It walks all pages: nothing to do while a step is timed."""
    rollup = Path("/proc/self/smaps_rollup")
    try:
        lines = dict(line.split(":", 1) for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
    except OSError:
        return None
    return int(lines["Pss"].split()[0]) * 1024


@dataclass
class CpuUsage:
    """CPU seconds used inside the timed intervals only."""

    cpus: Collection[int] = field(default_factory=affinity)  # of the machine, that any of its ranks may run on
    rank_s: float = 0.0
    machine_s: float = 0.0

    @contextmanager
    def counted(self, count: bool) -> Iterator[None]:
        """Add what is used inside the block, if `count`."""
        rank_s, machine_s = cpu_seconds_used(), machine_cpu_seconds_used(self.cpus)
        yield
        if count:
            self.rank_s += cpu_seconds_used() - rank_s
            self.machine_s += machine_cpu_seconds_used(self.cpus) - machine_s


def usable_cpus(cpus: Collection[int] | None = None) -> int:
    """How many CPUs these are, by default those that this process may run on; a container's quota, rounded down, if less."""
    allowed = len(affinity() if cpus is None else cpus)
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.exists():
        share, period = quota.read_text().split()
        if share != "max":
            return max(1, min(allowed, int(share) // int(period)))
    return allowed
