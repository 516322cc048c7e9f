"""Where a trial ran: machine, devices, versions, threads. Secrets stay out: only named settings are read."""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from dpscale.launching.slurm import node_name
from dpscale.monitoring.hardware import container, cpu_model, governor, gpu_topology, max_clock_MHz, numa_nodes
from dpscale.monitoring.monitor import usable_cpus
from dpscale.monitoring.nvml import Gpus

# Records of one table must agree on these (`machine_class`): a speed-up across two machines means nothing.
CLASS_FACTS = (
    "cpu_model",
    "usable_cpus",
    "max_clock_MHz",
    "governor",
    "numa_nodes",
    "kernel",
    "container",
    "devices_per_machine",
    "device_model",
    "device_memory_bytes",
    "device_ecc",
    "device_power_limit_w",
    "device_max_clock_MHz",
    "driver",
    "python",
    "torch",
    "cuda",
    "nccl",
    "code_digest",
)
DEVICE_FACTS = (
    "driver",
    "device_model",
    "devices_per_machine",
    "device_memory_bytes",
    "device_ecc",
    "device_power_limit_w",
    "device_max_clock_MHz",
    "gpu_topology",
    "gpus",
)
SECRETS = re.compile("PASSWORD|SECRET|TOKEN|CREDENTIAL", re.IGNORECASE)  # in the name of a variable
RECORDED_SETTINGS = ("OMP_", "MKL_", "NCCL_", "GLOO_", "CUDA_VISIBLE_DEVICES", "KMP_", "MALLOC_", "TORCH_NCCL_")


def prefer_this_python() -> None:
    """Put this interpreter's folder first on the PATH of whatever this process starts."""
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def describe_machine(device: str, cpus: Collection[int] | None = None) -> dict[str, Any]:
    """Facts of this machine and its software; GPU facts are null on a CPU trial, as is what the machine does not tell.

    Args:
        cpus: that the trial's ranks may run on; by default those of this process.
    """
    import torch

    numa = numa_nodes()
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "node": node_name(),
        "os": platform.platform(),
        "kernel": platform.release(),
        "container": container(),
        "cpu_model": cpu_model(),
        "cpus": psutil.cpu_count(),
        "usable_cpus": usable_cpus(cpus),
        "max_clock_MHz": max_clock_MHz(),
        "governor": governor(),
        "numa_nodes": None if numa is None else len(numa),
        "cpus_of_numa_nodes": numa,
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
        "cudnn": None,
        **dict.fromkeys(DEVICE_FACTS),
        "settings": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(RECORDED_SETTINGS) and not SECRETS.search(name)
        },
    }
    if device == "cuda":
        count = torch.cuda.device_count()
        facts |= {
            "cuda": torch.version.cuda,
            "nccl": ".".join(str(part) for part in torch.cuda.nccl.version()),
            "cudnn": torch.backends.cudnn.version(),
            "device_model": torch.cuda.get_device_name(),
            "devices_per_machine": count,
            "gpu_topology": gpu_topology(),
            **facts_of_gpus(device_uuids(device, list(range(count)))),
        }
    return facts


def facts_of_gpus(uuids: list[str]) -> dict[str, Any]:
    """What NVML says of this machine's visible GPUs, and what of it they have in common: values that differ stand side by
    side. Empty where NVML is not to be had."""
    try:
        gpus = Gpus(uuids)
    except RuntimeError:
        return {}
    cards = gpus.facts()

    def of_all(name: str) -> Any:
        values = sorted({card[name] for card in cards if card[name] is not None})
        return values[0] if len(values) == 1 else "/".join(map(str, values)) or None

    return {
        "driver": gpus.driver(),
        "device_memory_bytes": of_all("memory_bytes"),
        "device_ecc": of_all("ecc"),
        "device_power_limit_w": of_all("power_limit_w"),
        "device_max_clock_MHz": of_all("max_sm_clock_MHz"),
        "gpus": cards,
    }


def device_uuids(device: str, indices: list[int]) -> list[str]:
    """UUIDs of visible CUDA devices, as NVML spells those of whole GPUs; empty on a CPU."""
    if device != "cuda":
        return []
    import torch

    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in indices]
