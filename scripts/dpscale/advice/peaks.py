"""What GPUs could compute at most, by their makers' data sheets: dense, without the factor of two for sparse matrices."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """One kind of GPU."""

    name: str  # pattern of its whole name, as CUDA gives it, without its maker
    TFLOP_per_s: dict[str, float]  # precision -> 10^12 operations per second; a precision that it lacks is absent
    source: str


MAKER = r"(NVIDIA |TESLA )*"
NVIDIA = "NVIDIA's data sheet of the"
PEAKS = (
    Peak(r"V100-PCIE-(16|32)GB", {"fp32": 14.0, "fp16": 112.0}, f"{NVIDIA} V100 (1165301)"),
    Peak(r"V100-SXM2-(16|32)GB", {"fp32": 15.7, "fp16": 125.0}, f"{NVIDIA} V100 (1165301)"),
    Peak(r"T4", {"fp32": 8.1, "fp16": 65.0}, f"{NVIDIA} T4 (951643)"),
    Peak(
        r"A100-(SXM4|PCIE|PG509)-(40|80)GB|A100 80GB PCIE",
        {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0},
        f"{NVIDIA} A100 (1758950)",
    ),
    Peak(r"A40", {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7, "fp16": 149.7}, f"{NVIDIA} A40"),
    Peak(r"L4", {"fp32": 30.3, "tf32": 60.0, "bf16": 121.0, "fp16": 121.0}, f"{NVIDIA} L4"),
    Peak(r"L40S", {"fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0}, f"{NVIDIA} L40S"),
    Peak(r"H100 PCIE", {"fp32": 51.0, "tf32": 378.0, "bf16": 756.5, "fp16": 756.5}, f"{NVIDIA} H100"),
    Peak(r"H100 80GB HBM3", {"fp32": 67.0, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5}, f"{NVIDIA} H100"),
    Peak(r"H200", {"fp32": 67.0, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5}, f"{NVIDIA} H200"),
)


def peak_of(device_model: str) -> Peak | None:
    """None for a GPU that is not listed: of a share of one (MIG, a virtual GPU) and of variants of less power (H100 NVL) no peak
    of the whole is true, so that the whole name has to be known."""
    return next((peak for peak in PEAKS if re.fullmatch(MAKER + f"({peak.name})", device_model.upper())), None)
