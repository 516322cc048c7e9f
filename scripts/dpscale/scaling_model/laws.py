"""Laws of scaling with one to three parameters, as baselines: a prediction must beat them to earn its place.

A law is fitted to the times that N devices take for a fixed work of each (weak scaling; under strong scaling: the time of one
sample on each device), so that on a perfect machine they are constant. Speed-up is of throughput, S(N) = N t(1) / t(N).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dpscale.errors import UserError

Array = np.ndarray[Any, np.dtype[np.float64]]
Curve = Callable[[Array], Array]  # devices -> times, in the unit of those that it was fitted to
Law = Callable[[Sequence[float] | Array, Sequence[float] | Array], Curve]  # devices, times -> curve


def _of(fewest: int, formula: str, fit: Callable[[Array, Array], Curve]) -> Law:
    """A fit that wants so many different numbers of devices; with fewer a parameter would be free."""

    def checked(devices: Sequence[float] | Array, times: Sequence[float] | Array) -> Curve:
        """Raises UserError if there are too few numbers of devices, and says how many are missing."""
        found = np.unique(devices)
        if len(found) < fewest:
            measured = ", ".join(f"{count:g}" for count in found) or "none"
            raise UserError(
                f"{formula} needs times on {fewest} numbers of devices; measured: {measured}; measure {fewest - len(found)} more"
            )
        return fit(np.asarray(devices, dtype=float), np.asarray(times, dtype=float))

    return checked


def _ideal(devices: Array, times: Array) -> Curve:
    """Nothing is lost: the time is that on the fewest devices."""
    return _constant(times[np.argmin(devices)])


def _frozen(devices: Array, times: Array) -> Curve:
    """Nothing more is lost: the time is that on the most devices, so efficiency stays as it is there."""
    return _constant(times[np.argmax(devices)])


def _constant(time: float) -> Curve:
    return lambda more: np.full(np.shape(more), time)


def _amdahl(devices: Array, times: Array) -> Curve:
    """A share s of the work is serial: S = N / (1 + s (N - 1)), so t = t(1) (1 + s (N - 1)).

    Amdahl, Validity of the single processor approach to achieving large scale computing capabilities, AFIPS 1967.
    """
    return _not_negative(times, devices, lambda n: [np.ones_like(n), n - 1])


def _universal(devices: Array, times: Array) -> Curve:
    """Contention s, as Amdahl has it, and coherency k: S = N / (1 + s (N - 1) + k N (N - 1)).

    Gunther, Guerrilla Capacity Planning, 2007, chapter 4.
    """
    return _not_negative(times, devices, lambda n: [np.ones_like(n), n - 1, n * (n - 1)])


def _gustafson(devices: Array, times: Array) -> Curve:
    """A share s of the time is serial, whatever N: S = s + (1 - s) N, so N / t = (s + (1 - s) N) / t(1).

    Gustafson, Reevaluating Amdahl's law, Communications of the ACM 31 (1988).
    """
    throughput = _not_negative(devices / times, devices, lambda n: [np.ones_like(n), n])
    return lambda more: np.asarray(more) / throughput(more)


def _logarithm(devices: Array, times: Array) -> Curve:
    """Every doubling costs the same: t = a + c log2 N, a tree's latency and what is often drawn by hand. It is held to no
    sign, so where times fall it ends below zero."""
    per_doubling, single = np.polyfit(np.log2(devices), times, 1)
    return lambda more: single + per_doubling * np.log2(more)


def _not_negative(values: Array, devices: Array, terms: Callable[[Array], Sequence[Array]]) -> Curve:
    """Least squares of which no term is negative; the values are scaled, so that their unit plays no part."""
    from scipy.optimize import nnls

    scale = values.max()
    found, _ = nnls(np.stack(terms(devices), axis=-1), values / scale)
    return lambda more: np.stack(terms(np.asarray(more, dtype=float)), axis=-1) @ (found * scale)


LAWS: Mapping[str, Law] = MappingProxyType(
    {
        "ideal": _of(1, "t = t(fewest)", _ideal),
        "frozen_efficiency": _of(1, "t = t(most)", _frozen),
        "amdahl": _of(2, "t = t(1) (1 + s (N - 1))", _amdahl),
        "gustafson": _of(2, "N / t = (s + (1 - s) N) / t(1)", _gustafson),
        "universal_scalability": _of(3, "t = t(1) (1 + s (N - 1) + k N (N - 1))", _universal),
        "logarithm": _of(2, "t = a + c log2 N", _logarithm),
    }
)
