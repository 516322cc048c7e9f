"""Times of all-reduces -> the network that explains them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpscale.errors import UserError
from dpscale.scaling_model.links import TREE_SHARE_OF_BANDWIDTH, Array, Network, all_reduce_s
from dpscale.scaling_model.measurements import Exchange

MOST_ROUNDS = 20  # of choosing ring or tree for each exchange, and fitting again; three or so are needed
LARGEST_BANDWIDTH_B_PER_S = 1e15  # where a resample shows no time that grows with size


def fit(nodes: Array, devices_per_node: Array, nbytes: Array, time_s: Array) -> Network:
    """The network whose all-reduces have the least relative errors, by nonnegative least squares.

    Which of ring and tree an exchange took is chosen by what was fitted before, until nothing changes, once from all
    rings and once from all trees; the better fit counts. A level, within a node or between, that no exchange used, gets
    the other's numbers.
    """
    rings, trees = _rows(nodes, devices_per_node, nbytes)
    found = [
        _alternated(rings, trees, time_s, start) for start in (np.ones(len(time_s), bool), np.zeros(len(time_s), bool))
    ]
    _, launch_s, intra_s, inter_s, intra_s_per_B, inter_s_per_B = min(found)
    if not (devices_per_node > 1).any():
        intra_s = inter_s
    if not (nodes == 1).any():
        intra_s_per_B = inter_s_per_B
    if not (nodes > 1).any():
        inter_s, inter_s_per_B = intra_s, intra_s_per_B
    least = 1 / LARGEST_BANDWIDTH_B_PER_S
    return Network(
        launch_s=launch_s,
        intra_latency_s=intra_s,
        inter_latency_s=inter_s,
        intra_bandwidth_B_per_s=1 / max(intra_s_per_B, least),
        inter_bandwidth_B_per_s=1 / max(inter_s_per_B, least),
    )


def _rows(nodes: Array, devices_per_node: Array, nbytes: Array) -> tuple[Array, Array]:
    """What rings and trees of links.py are made of: times = rows @ (launch, intra and inter latency, intra and inter s per B)."""
    devices, one = nodes * devices_per_node, nodes == 1
    ring_bytes = 2 * (devices - 1) / devices * nbytes
    tree_bytes = 2 * nbytes / TREE_SHARE_OF_BANDWIDTH
    ring_intra, ring_inter = 2 * (devices - 1) - 2 * (nodes - 1), 2 * (nodes - 1)
    tree_intra, tree_inter = 2 * (devices_per_node - 1), 2 * np.log2(nodes)
    launch = np.ones(len(nodes))
    return (
        np.column_stack([launch, ring_intra, ring_inter, ring_bytes * one, ring_bytes * ~one]),
        np.column_stack([launch, tree_intra, tree_inter, tree_bytes * one, tree_bytes * ~one]),
    )


def _alternated(rings: Array, trees: Array, time_s: Array, start: Array) -> tuple[float, ...]:
    """(squared relative error, the five parameters), from a first guess of which exchanges are rings."""
    from scipy.optimize import nnls

    is_ring, target = start, np.ones(len(time_s))
    for _ in range(MOST_ROUNDS):
        rows = np.where(is_ring[:, None], rings, trees) / time_s[:, None]
        scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)  # columns differ by nine orders of magnitude
        parameters = nnls(rows / scale, target)[0] / scale
        of_ring, of_tree = rings @ parameters, trees @ parameters
        quicker = of_ring <= of_tree
        if (quicker == is_ring).all():
            break
        is_ring = quicker
    error = float((((np.minimum(of_ring, of_tree) - time_s) / time_s) ** 2).sum())
    return error, *map(float, parameters)


def resampled(exchanges: Sequence[Exchange], network: Network, draws: int, rng: np.random.Generator) -> list[Network]:
    """Networks that were as likely found: relative errors of the fit, drawn anew for each exchange, and fitted again."""
    nodes, devices_per_node, nbytes, time_s = arrays(exchanges)
    fitted_s = all_reduce_s(nbytes, nodes, devices_per_node, network)
    used = 1 + 2 * bool((nodes == 1).any()) + 2 * bool((nodes > 1).any())
    inflated = np.sqrt(len(time_s) / max(1, len(time_s) - used))  # a fit lies too near to what it was fitted to
    errors = np.log(time_s / fitted_s) * inflated
    return [
        fit(nodes, devices_per_node, nbytes, fitted_s * np.exp(rng.choice(errors, len(errors)))) for _ in range(draws)
    ]


def arrays(exchanges: Sequence[Exchange]) -> tuple[Array, Array, Array, Array]:
    """(nodes, devices per node, bytes, seconds)."""
    return (
        np.array([one.nodes for one in exchanges]),
        np.array([one.devices_per_node for one in exchanges]),
        np.array([float(one.nbytes) for one in exchanges]),
        np.array([one.time_s for one in exchanges]),
    )


def refuse_too_few(exchanges: Sequence[Exchange]) -> None:
    """Raises UserError: these exchanges can't tell a network's numbers apart; says which is missing."""
    if not exchanges:
        raise UserError(
            "prediction: no exchange was measured; add collectives: {operations: [all_reduce]} to the experiment, on "
            "topologies of 2 devices and of 4"
        )
    nodes, devices_per_node, nbytes, _ = arrays(exchanges)
    topologies = sorted({f"{one.nodes}x{one.devices_per_node}" for one in exchanges})
    for level, mine in (("one node", nodes == 1), ("several nodes", nodes > 1)):
        if mine.any() and len(set(nbytes[mine])) < 2:
            raise UserError(
                f"prediction: on {level} exchanges of {int(nbytes[mine][0])} bytes only: latency and bandwidth can't be told "
                "apart; time all_reduce over several sizes (collectives.sizes)"
            )
    if len(counts := set(nodes * devices_per_node)) < 2:
        raise UserError(
            f"prediction: exchanges on {counts.pop()} devices only ({', '.join(topologies)}): nothing says how they grow "
            "with N; time them on twice as many devices, too (collectives.topologies)"
        )
    rows = _rows(nodes, devices_per_node, nbytes)[0]
    rows = rows[:, np.abs(rows).max(axis=0) > 0]
    scaled = rows / np.abs(rows).max(axis=0)
    if np.linalg.matrix_rank(scaled) < rows.shape[1]:
        raise UserError(
            f"prediction: exchanges on {', '.join(topologies)} can't tell apart what an exchange costs at its start, within a "
            "node and between nodes; add a topology to collectives.topologies, such as 1x4 or 2x1"
        )
