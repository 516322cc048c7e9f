"""What each collective is, and its bandwidths as nccl-tests defines them. Pure: torch's calls are in exchanges.py.

The size S of a collective, in bytes, is nccl-tests' own: of the whole array that is exchanged. For those that split it
or join it (scatter, gather, all-gather, reduce-scatter, all-to-all) that is all ranks' parts together.

    algorithm bandwidth  algbw = S / t
    bus bandwidth        busbw = algbw x factor

The factor makes busbw comparable with the bandwidth of a link, whatever the number n of ranks: what the busiest rank must
at least send or receive. Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md (all-reduce to all-to-all), and GetBw of src/scatter.cu,
src/gather.cu and src/sendrecv.cu. GB are decimal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One row of OPERATIONS."""

    summary: str
    busbw_factor: Callable[[int], float]  # of the number of ranks
    in_parts: bool  # the array is split into a part for each rank: its size is a multiple of theirs


def _whole(n: int) -> float:
    return 1.0


def _others_parts(n: int) -> float:
    return (n - 1) / n


def _there_and_back(n: int) -> float:
    return 2 * (n - 1) / n


OPERATIONS = {
    "all_reduce": Operation(
        summary="the sum of all ranks' arrays, on every rank", busbw_factor=_there_and_back, in_parts=False
    ),
    "reduce": Operation(summary="the same on rank 0", busbw_factor=_whole, in_parts=False),
    "broadcast": Operation(summary="rank 0's array, on every rank", busbw_factor=_whole, in_parts=False),
    "all_gather": Operation(summary="all ranks' parts, on every rank", busbw_factor=_others_parts, in_parts=True),
    "gather": Operation(summary="the same on rank 0", busbw_factor=_others_parts, in_parts=True),
    "scatter": Operation(summary="of rank 0's array, to each rank its part", busbw_factor=_others_parts, in_parts=True),
    "reduce_scatter": Operation(
        summary="of the sum of all ranks' arrays, to each rank its part", busbw_factor=_others_parts, in_parts=True
    ),
    "all_to_all": Operation(
        summary="of every rank's array, to each rank its part", busbw_factor=_others_parts, in_parts=True
    ),
    "send_recv": Operation(
        summary="in a ring: each rank's array to the next, the one before's from it",
        busbw_factor=_whole,
        in_parts=False,
    ),
}
ITEM_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2, "int32": 4, "int64": 8, "uint8": 1}


def count_of(operation: str, size_bytes: int, dtype: str, ranks: int) -> int:
    """Elements of the whole array: as many as fit into the size, in equal parts where it is split; 0 if none do."""
    count = size_bytes // ITEM_BYTES[dtype]
    return count - count % ranks if OPERATIONS[operation].in_parts else count


def algbw_GB_per_s(size_bytes: int, time_s: float) -> float:
    return size_bytes / time_s / 1e9


def busbw_GB_per_s(operation: str, size_bytes: int, time_s: float, ranks: int) -> float:
    return algbw_GB_per_s(size_bytes, time_s) * OPERATIONS[operation].busbw_factor(ranks)
