"""What the kernel says of this machine's processors: model, clocks, governor, NUMA nodes; and whether it is a container."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

CPUS, NUMA = Path("/sys/devices/system/cpu"), Path("/sys/devices/system/node")
IN_A_CONTAINER = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}  # files that they leave


def cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def governor(folder: Path = CPUS) -> str | None:
    """How the kernel chooses the CPUs' clocks; all names that there are, where CPUs differ. None where it does not say, as
    in most virtual machines."""
    names = {path.read_text().strip() for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return "+".join(sorted(names)) or None


def max_clock_MHz(folder: Path = CPUS) -> int | None:
    """The highest clock of any CPU; None where the kernel does not say."""
    clocks = [int(path.read_text()) // 1000 for path in folder.glob("cpu[0-9]*/cpufreq/cpuinfo_max_freq")]
    return max(clocks, default=None)


def numa_nodes(folder: Path = NUMA) -> dict[str, str] | None:
    """NUMA node -> its CPUs, as the kernel lists them; None where it does not say."""
    found = {path.parent.name: path.read_text().strip() for path in sorted(folder.glob("node[0-9]*/cpulist"))}
    return found or None


def container(variables: Mapping[str, str] = os.environ, root: Path = Path("/")) -> str | None:
    """What this process is contained in, with the image where it is known; None if in nothing that says so."""
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if name in variables:
            return f"apptainer {Path(variables[name]).name}"
    return next((kind for path, kind in IN_A_CONTAINER.items() if (root / path.lstrip("/")).exists()), None)


def gpu_topology() -> str | None:
    """The matrix of nvidia-smi: how GPUs, network cards and CPUs are connected. None where it can't be had."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=60, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
