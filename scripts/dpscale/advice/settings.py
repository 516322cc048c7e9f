"""The config's advice: what it asks of efficiency, and what only the owner of the machine knows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dpscale.typed import Number, Strict

Peaks = dict[Literal["fp32", "tf32", "bf16", "fp16"], Annotated[Number, Field(gt=0)]]


class AdviceConfig(Strict):
    """What advice is measured against. Changing this makes the advice again and nothing else."""

    least_efficiency: Number = Field(
        0.8, gt=0, le=1, description="scaling efficiency that the largest advisable number of devices must keep"
    )
    price_per_device_hour: Number | None = Field(
        None, gt=0, description="what one device costs per hour; null = no money is mentioned"
    )
    currency: str = Field("EUR", min_length=1, max_length=20, description="of that price")
    peak_TFLOP_per_s: Peaks | None = Field(
        None,
        description="precision -> peak of one device, in 10^12 floating-point operations per second, such as {fp32: 0.05}; on "
        "a CPU of a rank's share of the cores; null = the maker's, of GPUs whose data sheet is known",
    )
