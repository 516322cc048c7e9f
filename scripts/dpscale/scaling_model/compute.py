"""What one device takes for a step, what the slowest of many takes, and what ranks of a node cost each other."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def fitted_step(batch_sizes: Array, step_s: Array) -> tuple[float, float]:
    """(t0, tau) of t(b) = t0 + tau b: seconds per step, and per sample; neither is below 0.

    Relative errors are made small, as a long step varies by more seconds than a short one.
    """
    from scipy.optimize import nnls

    rows = np.column_stack([np.ones(len(batch_sizes)), batch_sizes]) / step_s[:, None]
    (fixed_s, per_sample_s), _ = nnls(rows, np.ones(len(step_s)))
    return float(fixed_s), float(per_sample_s)


def expected_largest(values: Array, ranks: Array) -> Array:
    """Expectation of the largest of N values that are drawn, with replacement, from those that were seen.

    This is what a bootstrap of infinitely many resamples gives: the i-th smallest of P is the largest of N with probability
    (i / P)^N - ((i - 1) / P)^N. It can't exceed the largest value seen: beyond about P ranks it is a lower bound.

    Args:
        values: [..., P].
        ranks: [topology], N.

    Returns:
        [..., topology].
    """
    count = values.shape[-1]
    below = (np.arange(count + 1) / count)[:, None] ** np.asarray(ranks, float)[None, :]
    return np.sort(values, axis=-1) @ np.diff(below, axis=0)


def contention_at(ranks_per_node: Array, measured_at: Array, shares: Array) -> Array:
    """Share of a step that ranks on one node add to each other's: 0 for a rank alone, and straight lines between what was
    measured.

    Beyond it the last line goes on, if it bends from the one that leads from a rank alone to the last place by more than
    chance: cores run out, say. Else that longer one goes on, which noise tilts less. Neither falls.

    Args:
        ranks_per_node: [topology].
        measured_at: [place], ranks per node, rising, each above 1.
        shares: [draw, place].

    Returns:
        [draw, topology].
    """
    if not len(measured_at):
        return np.zeros((len(shares), len(ranks_per_node)))
    places = np.concatenate([[1.0], measured_at])
    known = np.column_stack([np.zeros(len(shares)), shares])
    wanted = np.asarray(ranks_per_node, float)
    left = np.clip(np.searchsorted(places, wanted, side="right") - 1, 0, len(places) - 2)
    slope = (known[:, left + 1] - known[:, left]) / (places[left + 1] - places[left])
    beyond = wanted > places[-1]
    from_alone = known[:, -1] / (places[-1] - 1)
    bend = (known[:, -1] - known[:, -2]) / (places[-1] - places[-2]) - from_alone
    onward = from_alone if len(bend) > 1 and abs(bend[0]) < 3 * bend[1:].std() else from_alone + bend
    slope = np.where(beyond, np.maximum(0.0, onward)[:, None], slope)
    anchor = np.where(beyond, len(places) - 1, left)
    return known[:, anchor] + slope * (wanted - places[anchor])
