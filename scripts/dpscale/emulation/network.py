"""A network that is not there: how long an all-reduce takes over it, from a file that only ranks read.

Rings and trees as NCCL's tuner has them (NVIDIA/nccl, src/graph/tuning.cc), of m bytes over n nodes x g devices, N = n g:

    ring   L0 + (2 (N - 1) - 2 (n - 1)) a_intra + 2 (n - 1) a_inter + 2 (N - 1) / N m / B
    tree   L0 + 2 ((g - 1) a_intra + log2(n) a_inter) + 2 m / (0.92 B)

with latencies a, and B the bandwidth of the slowest link on the way. What takes less is used, as NCCL does.
"""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from dpscale.reading import read_keys
from dpscale.typed import Number, Strict, validated

TREE_EFFICIENCY = 0.92


class Network(Strict):
    """What stands in such a file. GB are decimal."""

    overhead_s: Number = Field(0.0, ge=0, description="L0: of every all-reduce, before its first byte moves")
    intra_latency_s: Number = Field(ge=0, description="of a message between devices of a node")
    inter_latency_s: Number = Field(ge=0, description="of a message between nodes")
    intra_bandwidth_GB_per_s: Number = Field(gt=0, description="of a link within a node")
    inter_bandwidth_GB_per_s: Number = Field(gt=0, description="of a node's link to the others")
    noise_percent: Number = Field(
        0.0, ge=0, le=30, description="standard deviation of an all-reduce's time, drawn anew for each"
    )

    @classmethod
    def read(cls, path: Path) -> Network:
        """Raises UserError: no such file, no YAML, or not these keys; docs/emulation.md shows one."""
        return validated(cls, read_keys(path, "inter_latency_s: 0.001"), str(path))

    def all_reduce_s(self, size_bytes: int, nodes: int, devices_per_node: int) -> float:
        """Without noise; devices that are alone exchange nothing."""
        devices = nodes * devices_per_node
        if devices == 1:
            return 0.0
        rates = [self.intra_bandwidth_GB_per_s] * (devices_per_node > 1) + [self.inter_bandwidth_GB_per_s] * (nodes > 1)
        transfer_s = 2 * size_bytes / (min(rates) * 1e9)
        between = 2 * (nodes - 1)
        ring_s = (
            (2 * (devices - 1) - between) * self.intra_latency_s
            + between * self.inter_latency_s
            + (devices - 1) / devices * transfer_s
        )
        tree_s = (
            2 * ((devices_per_node - 1) * self.intra_latency_s + math.log2(nodes) * self.inter_latency_s)
            + transfer_s / TREE_EFFICIENCY
        )
        return self.overhead_s + min(ring_s, tree_s)
