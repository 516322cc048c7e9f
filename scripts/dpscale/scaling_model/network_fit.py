"""Times of all-reduces -> the network that explains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpscale.errors import UserError
from dpscale.scaling_model.links import TREE_SHARE_OF_BANDWIDTH, Array, Network
from dpscale.scaling_model.measurements import Exchange

MOST_ROUNDS = 20  # of choosing ring or tree for each exchange, and fitting again; three or so are needed
LARGEST_BANDWIDTH_B_PER_S = 1e15  # where a resample shows no time that grows with size


def fit(exchanges: Sequence[Exchange]) -> Network:
    """The network whose all-reduces have the least relative errors, by nonnegative least squares.

    Buckets that were exchanged in a step and exchanges that were timed alone share bandwidths. What they cost beside their
    bytes is not the same, as ranks meet anew for each that is alone: it is the steps' that counts here.

    Which of ring and tree an exchange took is chosen by what was fitted before, until nothing changes, once from all
    rings and once from all trees; the better fit counts. A level, within a node or between, that no exchange used, gets
    the other's numbers.
    """
    equations = _Equations.of(counting(exchanges))
    return equations.network(equations.solved(equations.time_s))


def resampled(exchanges: Sequence[Exchange], draws: int, rng: np.random.Generator) -> list[Network]:
    """Networks that were as likely found: relative errors of the fit, drawn anew for each exchange, and fitted again."""
    chosen = counting(exchanges)
    equations = _Equations.of(chosen)
    fitted_s = equations.times_s(equations.solved(equations.time_s))
    free = max(1, len(fitted_s) - int(equations.rings.any(axis=0).sum()))
    errors = np.log(equations.time_s / fitted_s) * np.sqrt(len(fitted_s) / free)  # a fit lies too near to what it fits
    kinds = [np.flatnonzero([one.in_step is kind for one in chosen]) for kind in (False, True)]
    found = []
    for _ in range(draws):
        drawn = np.empty_like(errors)
        for mine in kinds:
            drawn[mine] = errors[rng.choice(mine, len(mine))] if len(mine) else 0.0
        found.append(equations.network(equations.solved(fitted_s * np.exp(drawn))))
    return found


def counting(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Those that a fit is made from. Beside exchanges alone, buckets count only if they were exchanged on topologies enough
    to tell what each level costs."""
    alone = [one for one in exchanges if not one.in_step]
    buckets = [one for one in exchanges if one.in_step]
    if not alone or not buckets:
        return list(exchanges)
    nodes, devices_per_node, _, _ = arrays(buckets)
    costs = _ring_costs(nodes, devices_per_node)
    used = costs.any(axis=0)
    of_those_alone = _ring_costs(*arrays(alone)[:2]).any(axis=0)
    enough = np.linalg.matrix_rank(costs[:, used]) == used.sum() and (used >= of_those_alone).all()
    return [*alone, *buckets] if enough else alone


@dataclass(frozen=True)
class _Equations:
    """times = rings @ parameters or trees @ parameters.

    Parameters are what any exchange costs, what a message costs within a node and between nodes, the s per B within a node
    and between nodes, and what a bucket costs on top that waits for no other, if there are both kinds on some topology; and, if
    there are exchanges alone beside buckets, the first three once more for those.
    """

    nodes: Array  # [exchange]
    devices_per_node: Array
    time_s: Array
    rings: Array  # [exchange, parameter]
    trees: Array

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> _Equations:
        nodes, devices_per_node, nbytes, time_s = arrays(exchanges)
        devices, one = nodes * devices_per_node, nodes == 1
        in_step = np.array([one.in_step for one in exchanges])[:, None]
        queued, begun = (
            {_place(one) for one in exchanges if one.in_step and one.queued is is_so} for is_so in (True, False)
        )
        begins = np.array([[one.in_step and not one.queued and bool(queued & begun)] for one in exchanges])

        def rows(costs: Array, bytes_carried: Array) -> Array:
            carried = np.column_stack([bytes_carried * one, bytes_carried * ~one])
            if in_step.all() or not in_step.any():
                return np.hstack([costs, carried, begins])
            return np.hstack([costs * in_step, carried, begins, costs * ~in_step])

        return cls(
            nodes=nodes,
            devices_per_node=devices_per_node,
            time_s=time_s,
            rings=rows(_ring_costs(nodes, devices_per_node), 2 * (devices - 1) / devices * nbytes),
            trees=rows(_tree_costs(nodes, devices_per_node), 2 * nbytes / TREE_SHARE_OF_BANDWIDTH),
        )

    def times_s(self, parameters: Array) -> Array:
        """[exchange]: as these parameters have it."""
        found: Array = np.minimum(self.rings @ parameters, self.trees @ parameters)
        return found

    def solved(self, time_s: Array) -> Array:
        """The parameters of such times."""
        starts = (np.ones(len(time_s), bool), np.zeros(len(time_s), bool))
        found = [self._alternated(time_s, start) for start in starts]
        return min(found, key=lambda parameters: float((((self.times_s(parameters) - time_s) / time_s) ** 2).sum()))

    def _alternated(self, time_s: Array, is_ring: Array) -> Array:
        """From a first guess of which exchanges are rings."""
        from scipy.optimize import nnls

        for _ in range(MOST_ROUNDS):
            rows = np.where(is_ring[:, None], self.rings, self.trees) / time_s[:, None]
            scale = np.maximum(np.abs(rows).max(axis=0), 1e-300)  # columns differ by nine orders of magnitude
            parameters: Array = nnls(rows / scale, np.ones(len(time_s)))[0] / scale
            quicker = self.rings @ parameters <= self.trees @ parameters
            if (quicker == is_ring).all():
                break
            is_ring = quicker
        return parameters

    def network(self, parameters: Array) -> Network:
        launch_s, intra_s, inter_s, intra_s_per_B, inter_s_per_B, start_s = map(float, parameters[:6])
        if not (self.devices_per_node > 1).any():
            intra_s = inter_s
        if not (self.nodes == 1).any():
            intra_s_per_B = inter_s_per_B
        if not (self.nodes > 1).any():
            inter_s, inter_s_per_B = intra_s, intra_s_per_B
        least = 1 / LARGEST_BANDWIDTH_B_PER_S
        return Network(
            launch_s=launch_s,
            intra_latency_s=intra_s,
            inter_latency_s=inter_s,
            intra_bandwidth_B_per_s=1 / max(intra_s_per_B, least),
            inter_bandwidth_B_per_s=1 / max(inter_s_per_B, least),
            start_s=start_s,
        )


def _place(exchange: Exchange) -> tuple[int, int]:
    """(nodes, devices per node)."""
    return exchange.nodes, exchange.devices_per_node


def _ring_costs(nodes: Array, devices_per_node: Array) -> Array:
    """[exchange, (start, messages within a node, messages between nodes)] of rings as links.py has them."""
    crossings = 2 * (nodes - 1)
    return np.column_stack([np.ones(len(nodes)), 2 * (nodes * devices_per_node - 1) - crossings, crossings])


def _tree_costs(nodes: Array, devices_per_node: Array) -> Array:
    """The same of trees."""
    return np.column_stack([np.ones(len(nodes)), 2 * (devices_per_node - 1), 2 * np.log2(nodes)])


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
    exchanges = counting(exchanges)
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
    rows = _Equations.of(exchanges).rings
    rows = rows[:, rows.any(axis=0)]
    scaled = rows / np.abs(rows).max(axis=0)
    if np.linalg.matrix_rank(scaled) < rows.shape[1]:
        raise UserError(
            f"prediction: exchanges on {', '.join(topologies)} can't tell apart what an exchange costs at its start, within a "
            "node and between nodes; add a topology to collectives.topologies, such as 1x4 or 2x1"
        )
