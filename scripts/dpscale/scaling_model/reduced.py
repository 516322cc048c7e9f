"""The time per step on more devices, where only times on a few are known: published tables. docs/published.md explains it.

    t(n nodes, g devices each) = t(anchor) + t(first) [ c log2(g / g_anchor) + d (s(n) - s(n_anchor)) ]

The anchor is the measured point with the most devices, so what is measured stays. c is what a doubling of the devices of a
node costs and d what a second node costs, in parts of the first time; s is how that grows with nodes. Both costs are the
family's own where its points show them, drawn towards what other systems have shown, and those systems' where they don't.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from dpscale.errors import UserError
from dpscale.scaling_model.observed import Family, Layout, Point

COVERAGE = 0.8  # of an interval
LEAST_FACTOR = 0.1  # were other systems' times to fall beyond a node, a new one's would still not be expected to
RELATIVE_SPREAD = (
    0.5  # standard deviation of the cost of a doubling around what the overhead lets expect, as a part of it
)
UNKNOWN = 0.3  # standard deviation of the cost of a doubling of which neither the points nor other systems say anything

SPREADS: Mapping[str, Callable[[int], float]] = MappingProxyType(
    {  # the cost of n nodes over that of two
        "halved": lambda nodes: (
            (1 + math.log2(nodes)) / 2 if nodes > 1 else 0.0
        ),  # a further doubling costs half as much
        "ring": lambda nodes: 2 * (1 - 1 / nodes),  # bytes over each link of a ring (Patarasuk and Yuan, 2009)
        "tree": lambda nodes: math.log2(nodes),  # steps of a tree, one after another
    }
)


@dataclass(frozen=True)
class Form:
    """What is assumed, not fitted. The defaults are those of the least error on systems left out (docs/published.md)."""

    spread: str = "halved"
    half_counted: float = 0.5  # the overhead of which half is taken for communication; inf: all of any is
    misfit: float = (
        0.05  # of a time, as a part of it: repeats differ by 2.7 % (r.m.s.), and doublings are not all alike
    )
    least_cost: float = 0.01  # below it costs differ by noise: how sure a prediction is depends on it
    by_system: bool = True  # every system counts the same in the prior; else every point

    def counted(self, overhead: float) -> float:
        """How much of an overhead grows with devices: a very large one is not communication but a slow input pipeline,
        a wrapper's copies or Python, which more nodes do not raise."""
        return max(overhead, 0.0) / (1 + max(overhead, 0.0) / self.half_counted)


@dataclass(frozen=True)
class Costs:
    """In parts of the first time."""

    doubling: float  # of devices within a node
    second_node: float


@dataclass(frozen=True)
class Prior:
    """What other systems have shown."""

    per_overhead: float  # cost of a doubling over the counted overhead of a full node
    node_factor: float  # cost of a second node over that of a doubling within one
    low: float  # deviations between which 80 % of points lie, in the unit of Prediction.deviation
    high: float
    systems: tuple[str, ...]


@dataclass(frozen=True)
class Prediction:
    """The time per step, in the unit of the points, with its 80 % interval."""

    step_time: float
    low: float
    high: float


def predict(calibration: Sequence[Point], target: Layout, prior: Prior, form: Form) -> Prediction:
    """From points on few devices, as observed.calibration gives them; the interval widens with the distance from them."""
    time, scale = _expected(calibration, target, prior.per_overhead, prior.node_factor, form)
    return Prediction(time, _deviated(time, scale, prior.low), _deviated(time, scale, prior.high))


def fit_prior(families: Iterable[Family], form: Form) -> Prior:
    """From families with points on one node and on more.

    The interval's ends are quantiles of the deviations that such predictions had from what was measured, each made
    without the system it is for: what a new system does differently is in them.

    Raises:
        UserError: too few systems, or none that shows how a node's devices and further nodes compare.
    """
    crossings = [crossing for family in families if (crossing := _crossing(family))]
    systems = sorted({crossing.system for crossing in crossings})
    if len(systems) < 2:
        raise UserError(
            f"a prior needs two systems, each with points on one device, on more of its node and on more nodes; "
            f"found: {', '.join(systems) or 'none'}; add such rows, or give another table by --prior"
        )
    factors = _factors(crossings, form)
    deviations, weights = [], []
    for system in systems:
        others = [crossing for crossing in crossings if crossing.system != system]
        own = [crossing for crossing in crossings if crossing.system == system]
        try:
            from_others = _factors(others, form)
        except UserError:  # the others have none with three points on a node
            continue
        found = [
            _deviation(point.step_time, *_expected(crossing.on_one_node, point, *from_others, form))
            for crossing in own
            for point in crossing.beyond
        ]
        deviations += found
        weights += [1 / len(found) if form.by_system else 1.0] * len(found)
    if not deviations:
        raise UserError(
            f"{', '.join(systems)}: one system alone has three numbers of devices on a node: add one that has"
        )
    low, high = (_quantile(deviations, weights, q) for q in ((1 - COVERAGE) / 2, (1 + COVERAGE) / 2))
    return Prior(*factors, min(low, 0.0), max(high, 0.0), tuple(systems))


# The costs


def _expected(
    calibration: Sequence[Point], target: Layout, per_overhead: float, node_factor: float, form: Form
) -> tuple[float, float]:
    """Time per step, and the scale of deviations from it."""
    costs = _costs(calibration, per_overhead, node_factor, form)
    first = calibration[0].step_time
    most = max(point.devices for point in calibration)
    anchor = min(
        (point for point in calibration if point.devices == most),
        key=lambda point: (abs(math.log2(point.devices_per_node / target.devices_per_node)), -point.nodes),
    )
    spread = SPREADS[form.spread]
    doublings = math.log2(target.devices_per_node / anchor.devices_per_node)
    time = anchor.step_time + first * (
        costs.doubling * doublings + costs.second_node * (spread(target.nodes) - spread(anchor.nodes))
    )
    scale = first * (
        (costs.doubling + form.least_cost) * abs(doublings)
        + (costs.second_node + form.least_cost) * abs(math.log2(target.nodes / anchor.nodes))
    )
    return max(time, min(first, anchor.step_time)), scale


def _costs(calibration: Sequence[Point], per_overhead: float, node_factor: float, form: Form) -> Costs:
    """Least squares of the points with an exchange (more than one device), around their mean, and of two lines that stand
    for the prior: the cost of a doubling is what the overhead lets expect, and that of a second node is a multiple of it.
    None is negative."""
    from scipy.optimize import nnls

    first = calibration[0]
    spread = SPREADS[form.spread]
    exchanging = [point for point in calibration if point.devices > 1]
    places = np.array([[math.log2(point.devices_per_node), spread(point.nodes)] for point in exchanging])
    times = np.array([point.step_time / first.step_time for point in exchanging])

    on_one_node = [point for point in exchanging if point.nodes == 1]
    full = (on_one_node or exchanging)[-1]
    if first.devices == 1:
        expected = per_overhead * form.counted(full.step_time / first.step_time - 1)
        sigmas = [RELATIVE_SPREAD * (expected + form.least_cost), node_factor * expected + form.least_cost]
    else:  # what one device takes is not known, so neither is the overhead
        expected, sigmas = 0.0, [UNKNOWN, UNKNOWN]
    doubling_of_nodes = spread(4) - spread(2)
    lines = [[1, 0] if on_one_node else [0, doubling_of_nodes], [-node_factor, 1]]

    rows = np.vstack([(places - places.mean(axis=0)) / form.misfit, np.divide(lines, np.reshape(sigmas, (2, 1)))])
    values = np.concatenate([(times - times.mean()) / form.misfit, [expected / sigmas[0], 0.0]])
    (doubling, second_node), _ = nnls(rows, values)
    return Costs(float(doubling), float(second_node))


def _deviated(time: float, scale: float, deviation: float) -> float:
    """Longer by so many scales; a shorter one has its throughput, not its time, changed in proportion: it stays positive."""
    return time + deviation * scale if deviation >= 0 else time / (1 - deviation * scale / time)


def _deviation(measured: float, time: float, scale: float) -> float:
    """The inverse of _deviated."""
    return (measured - time) / scale if measured >= time else (1 - time / measured) * time / scale


# What other systems have shown


@dataclass(frozen=True)
class _Crossing:
    """From the devices of one node to more nodes."""

    system: str
    on_one_node: tuple[Point, ...]
    beyond: tuple[Point, ...]


def _crossing(family: Family) -> _Crossing | None:
    """None unless there are points on one device, on more of its node and on more nodes with more devices."""
    on_one_node = tuple(sorted((point for point in family.points if point.nodes == 1), key=lambda point: point.devices))
    if len(on_one_node) < 2 or on_one_node[0].devices > 1:
        return None
    most = on_one_node[-1].devices
    beyond = tuple(point for point in family.points if point.nodes > 1 and point.devices > most)
    return _Crossing(family.system, on_one_node, beyond) if beyond else None


def _factors(crossings: Sequence[_Crossing], form: Form) -> tuple[float, float]:
    """per_overhead and node_factor, each with the least sum of relative errors: a weighted median of quotients.

    Raises:
        UserError: no family has three points on a node with times that grow, or none has an overhead.
    """
    by_doubling = [
        (crossing, _doubling(crossing.on_one_node)) for crossing in crossings if len(crossing.on_one_node) > 2
    ]
    by_overhead = [(crossing, form.counted(_overhead(crossing.on_one_node))) for crossing in crossings]
    node_factor = _best_factor(by_doubling, form, "grows from two devices of a node to more")
    node_per_overhead = _best_factor(by_overhead, form, "takes longer on a node than on one device")
    return node_per_overhead / node_factor, node_factor


def _overhead(on_one_node: Sequence[Point]) -> float:
    return on_one_node[-1].step_time / on_one_node[0].step_time - 1


def _doubling(on_one_node: Sequence[Point]) -> float:
    """Cost of a doubling, by least squares over the points with an exchange, in parts of the first time."""
    exchanging = on_one_node[1:]
    slope = np.polyfit([math.log2(p.devices) for p in exchanging], [p.step_time for p in exchanging], 1)[0]
    return float(slope / on_one_node[0].step_time)


def _best_factor(bases: Iterable[tuple[_Crossing, float]], form: Form, missing: str) -> float:
    """The factor by which the bases best tell the cost of a second node: the least sum of absolute errors over measured
    times (and over the number of a system's points)."""
    spread = SPREADS[form.spread]
    quotients, weights, systems = [], [], []
    for crossing, base in bases:
        if base <= 0:
            continue
        for point in crossing.beyond:
            term = base * spread(point.nodes) * crossing.on_one_node[0].step_time
            quotients.append((point.step_time - crossing.on_one_node[-1].step_time) / term)
            weights.append(term / point.step_time)
            systems.append(crossing.system)
    if not quotients:
        raise UserError(
            f"the prior's table has no family whose time per step {missing}, and that goes on to more nodes"
        )
    if form.by_system:
        counts = Counter(systems)
        weights = [weight / counts[system] for weight, system in zip(weights, systems, strict=True)]
    return max(_quantile(quotients, weights, 0.5), LEAST_FACTOR)


def _quantile(values: Sequence[float], weights: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q, weights=weights, method="inverted_cdf"))
