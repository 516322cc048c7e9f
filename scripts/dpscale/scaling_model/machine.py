"""A topology file: a machine as its maker describes it, whether it is there or not."""

from __future__ import annotations

from pydantic import Field

from dpscale.scaling_model.links import Network
from dpscale.typed import Count, Number, Strict

US, GB = 1e-6, 1e9


class Link(Strict):
    """What devices are connected by, at one level."""

    latency_us: Number = Field(ge=0, description="of one step of an exchange, software included, in microseconds")
    bandwidth_GB_per_s: Number = Field(
        gt=0, description="that a ring of devices gets through it one way, in decimal GB/s"
    )


class Machine(Strict):
    """Nodes of equal devices, and what connects them."""

    nodes: Count = Field(description="that there are")
    devices_per_node: Count = Field(description="on each")
    launch_us: Number = Field(0.0, ge=0, description="what any exchange costs at its start, in microseconds")
    intra: Link = Field(description="within a node")
    inter: Link = Field(description="between nodes")
    efficiency: Number = Field(1.0, gt=0, le=1, description="share of these bandwidths that exchanges reach")
    price_per_device_hour: Number | None = Field(
        None, ge=0, description="in any currency; null: costs are device-hours"
    )

    @property
    def network(self) -> Network:
        return Network(
            launch_s=self.launch_us * US,
            intra_latency_s=self.intra.latency_us * US,
            inter_latency_s=self.inter.latency_us * US,
            intra_bandwidth_B_per_s=self.intra.bandwidth_GB_per_s * GB,
            inter_bandwidth_B_per_s=self.inter.bandwidth_GB_per_s * GB,
            efficiency=self.efficiency,
        )
