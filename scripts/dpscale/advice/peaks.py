"""What GPUs could compute at most, by their makers' data sheets: dense, without the factor of two for sparse matrices."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """One kind of GPU."""

    words: tuple[str, ...]  # all of which are in its name, as CUDA gives it
    TFLOP_per_s: dict[str, float]  # precision -> 10^12 operations per second; a precision that it lacks is absent
    source: str


NVIDIA = "NVIDIA's data sheet of the"
PEAKS = (
    Peak(("V100", "PCIE"), {"fp32": 14.0, "fp16": 112.0}, f"{NVIDIA} V100 (1165301)"),
    Peak(("V100", "SXM2"), {"fp32": 15.7, "fp16": 125.0}, f"{NVIDIA} V100 (1165301)"),
    Peak(("T4",), {"fp32": 8.1, "fp16": 65.0}, f"{NVIDIA} T4 (951643)"),
    Peak(("A100",), {"fp32": 19.5, "tf32": 156.0, "bf16": 312.0, "fp16": 312.0}, f"{NVIDIA} A100 (1758950)"),
    Peak(("A40",), {"fp32": 37.4, "tf32": 74.8, "bf16": 149.7, "fp16": 149.7}, f"{NVIDIA} A40"),
    Peak(("L4",), {"fp32": 30.3, "tf32": 60.0, "bf16": 121.0, "fp16": 121.0}, f"{NVIDIA} L4"),
    Peak(("L40S",), {"fp32": 91.6, "tf32": 183.0, "bf16": 362.0, "fp16": 362.0}, f"{NVIDIA} L40S"),
    Peak(("H100", "PCIE"), {"fp32": 51.0, "tf32": 378.0, "bf16": 756.5, "fp16": 756.5}, f"{NVIDIA} H100"),
    Peak(("H100", "HBM3"), {"fp32": 67.0, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5}, f"{NVIDIA} H100"),
    Peak(("H200",), {"fp32": 67.0, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5}, f"{NVIDIA} H200"),
)


NOT_A_WHOLE_OR_OTHER = {"MIG", "GRID", "NVL"}  # shares of a GPU, by MIG or as a virtual one, and cards of less power


def peak_of(device_model: str) -> Peak | None:
    """None for a GPU that is not listed, and for a share of one (MIG), whose peak no data sheet says."""
    words = set(re.split(r"[\s-]+", device_model.upper()))
    if words & NOT_A_WHOLE_OR_OTHER:
        return None
    return next((peak for peak in PEAKS if words.issuperset(peak.words)), None)
