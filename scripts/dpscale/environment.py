"""Where a trial ran: machine, devices, versions, threads. Secrets stay out: only named settings are read."""

from __future__ import annotations

import os
import platform
import socket
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from dpscale.monitor import usable_cpus
from dpscale.slurm import node_name

# Records of one table must agree on these (`machine_class`): a speed-up across two machines means nothing.
CLASS_FACTS = (
    "cpu_model",
    "usable_cpus",
    "devices_per_machine",
    "device_model",
    "driver",
    "python",
    "torch",
    "cuda",
    "nccl",
    "code_digest",
)
RECORDED_SETTINGS = ("OMP_", "MKL_", "NCCL_", "GLOO_", "CUDA_VISIBLE_DEVICES", "KMP_", "MALLOC_", "TORCH_NCCL_")


def prefer_this_python() -> None:
    """Put this interpreter's folder first on the PATH of whatever this process starts."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe_machine(device: str) -> dict[str, Any]:
    """Facts of this machine and its software; GPU facts are null on a CPU trial."""
    import torch

    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "node": node_name(),
        "os": platform.platform(),
        "cpu_model": cpu_model(),
        "usable_cpus": usable_cpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": package_version("torchvision"),
        "numpy": package_version("numpy"),
        "deepspeed": package_version("deepspeed"),
        "horovod": package_version("horovod"),
        "apex": package_version("apex"),
        "cuda": None,
        "nccl": None,
        "driver": None,
        "device_model": None,
        "devices_per_machine": None,
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith(RECORDED_SETTINGS)},
    }
    if device == "cuda":
        import pynvml

        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
        facts |= {
            "cuda": torch.version.cuda,
            "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()),
            "driver": driver.decode() if isinstance(driver, bytes) else driver,
            "device_model": torch.cuda.get_device_name(),
            "devices_per_machine": torch.cuda.device_count(),
        }
    return facts


def device_uuids(device: str, indices: list[int]) -> list[str]:
    """UUIDs of visible CUDA devices in NVML's spelling; empty on a CPU."""
    if device != "cuda":
        return []
    import torch

    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in indices]
