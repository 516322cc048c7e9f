"""The config's collectives: what is timed of them, beside an experiment's trials."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from dpscale.collectives.operations import OPERATIONS
from dpscale.errors import shown, suggest
from dpscale.typed import Count, Listed, Number, Strict, each_once

Dtype = Literal["float32", "float64", "bfloat16", "float16", "int32", "int64", "uint8"]
SIZE = re.compile(r"([1-9][0-9]*)(B|KiB|MiB|GiB)")
UNIT_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size_bytes(text: str) -> int:
    """Raises ValueError: no size such as 4KiB."""
    match = SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no size; write such as 512B, 4KiB, 64MiB or 1GiB")
    return int(match[1]) * UNIT_BYTES[match[2]]


def _range(text: str) -> str:
    first, dots, last = text.partition("..")
    if not dots:
        raise ValueError("write the smallest and the largest, such as 4KiB..64MiB")
    if size_bytes(first) > size_bytes(last):
        raise ValueError(f"begins with {first} and ends with less; write the smallest first")
    return text


def _all_or_some(value: Any) -> Any:
    if value == "all":
        return list(OPERATIONS)
    if isinstance(value, list) and (unknown := [name for name in value if name not in list(OPERATIONS)]):
        raise ValueError(f"unknown operation {shown(unknown[0])}; {suggest(unknown[0], OPERATIONS)}; or all")
    if not isinstance(value, list):
        raise ValueError("write all, or a list of operations; [] times none")
    return value


class CollectivesConfig(Strict):
    """Times of collectives alone, under the launchers and on the topologies of the experiment or its own."""

    operations: Annotated[list[str], BeforeValidator(_all_or_some), AfterValidator(each_once)] = Field(
        [], description="all, or which of OPERATIONS are timed; [] = none"
    )
    dtypes: Annotated[list[Dtype], Field(min_length=1), AfterValidator(each_once)] = Field(
        ["float32"], description="of the arrays that are exchanged"
    )
    sizes: Annotated[str, AfterValidator(_range)] = Field(
        "4KiB..64MiB", description="smallest and largest size of the whole array"
    )
    factor: Annotated[int, Field(ge=2)] = Field(4, description="each size is so many times the one before")
    launchers: Listed | None = Field(None, description="rows of LAUNCHERS; null = the experiment's")
    topologies: Listed | None = Field(
        None, description="nodes x devices_per_node; null = those of the experiment that have 2 devices or more"
    )
    network: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="file of an emulated network, from the folder that snakemake runs in; null = the machine's own links",
    )
    blocks: Count = Field(
        100, le=100_000, description="most values of each size; each is the time of a block of calls over their number"
    )
    seconds_per_size: Number = Field(
        1.0, gt=0, le=3600, description="fewer values, but at least 10, where they would take longer"
    )

    @property
    def sizes_bytes(self) -> list[int]:
        smallest, _, largest = self.sizes.partition("..")
        found = [size_bytes(smallest)]
        while found[-1] * self.factor <= size_bytes(largest):
            found.append(found[-1] * self.factor)
        return found
