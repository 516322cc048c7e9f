"""How long an all-reduce takes over n nodes of g devices each: the quicker one of a ring and of a tree.

The forms are those by which NCCL's own tuner chooses (NCCL, src/graph/tuning.cc, ncclTopoTuneModel): steps times latency
plus bytes over bandwidth, a latency within a node and one between nodes. Arguments are numbers or arrays that broadcast
against each other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

Array = np.ndarray
Numbers = float | Array

TREE_SHARE_OF_BANDWIDTH = 0.92  # of a ring's that a tree reaches: NCCL, tuning.cc


@dataclass(frozen=True, kw_only=True)
class Network:
    """Links between devices, as an all-reduce finds them. Numbers, or arrays of as many drawn networks."""

    launch_s: Numbers  # what any exchange costs before its first byte: L0
    intra_latency_s: Numbers  # of one step between devices of a node
    inter_latency_s: Numbers  # of one step between nodes
    intra_bandwidth_B_per_s: Numbers  # of a ring within one node
    inter_bandwidth_B_per_s: Numbers  # of a ring over several nodes, whose slowest link decides
    start_s: Numbers = (
        0.0  # from a bucket's readiness until its exchange begins, unless it waits for another one anyway
    )
    efficiency: Numbers = 1.0  # share of these bandwidths that exchanges reach

    def as_column(self) -> Network:
        """Drawn networks as the first axis of two, the second being left to topologies."""
        columns = {field.name: np.atleast_1d(getattr(self, field.name))[:, None] for field in fields(self)}
        return Network(**columns)


def all_reduce_s(nbytes: Numbers, nodes: Numbers, devices_per_node: Numbers, network: Network) -> Array:
    """Seconds until every one of N = nodes x devices_per_node devices holds the sum of arrays of `nbytes`; 0 on one."""
    quicker = np.minimum(
        ring_s(nbytes, nodes, devices_per_node, network), tree_s(nbytes, nodes, devices_per_node, network)
    )
    alone = np.asarray(nodes) * np.asarray(devices_per_node) == 1
    return np.where(alone, 0.0, quicker)


def ring_s(nbytes: Numbers, nodes: Numbers, devices_per_node: Numbers, network: Network) -> Array:
    """Reduce-scatter and all-gather around a ring: 2 (N - 1) steps, of which 2 (n - 1) cross between nodes.

    Every link carries 2 (N - 1) / N of the bytes (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
    clusters of workstations", Journal of Parallel and Distributed Computing 69, 2009).
    """
    n, devices = np.asarray(nodes, float), np.asarray(nodes, float) * devices_per_node
    latency_s = (2 * (devices - 1) - 2 * (n - 1)) * network.intra_latency_s + 2 * (n - 1) * network.inter_latency_s
    return network.launch_s + latency_s + 2 * (devices - 1) / devices * nbytes / bandwidth_B_per_s(nodes, network)


def tree_s(nbytes: Numbers, nodes: Numbers, devices_per_node: Numbers, network: Network) -> Array:
    """Up and down a double binary tree over nodes, a chain within each: 2 ((g - 1) + log2 n) steps.

    All bytes go up and down once (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction
    and scan", Parallel Computing 35, 2009; NCCL 2.4).
    """
    n, g = np.asarray(nodes, float), np.asarray(devices_per_node, float)
    latency_s = 2 * ((g - 1) * network.intra_latency_s + np.log2(n) * network.inter_latency_s)
    return network.launch_s + latency_s + 2 * nbytes / (TREE_SHARE_OF_BANDWIDTH * bandwidth_B_per_s(nodes, network))


def bandwidth_B_per_s(nodes: Numbers, network: Network) -> Array:
    """Of a ring on so many nodes, as far as exchanges reach it."""
    bandwidth = np.where(np.asarray(nodes) == 1, network.intra_bandwidth_B_per_s, network.inter_bandwidth_B_per_s)
    return network.efficiency * bandwidth
