"""How much of DDP's exchange shows: its buckets as events, one exchange after the other, while backward still runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray

FIRST_BUCKET_BYTES = 2**20  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES: the first one is small, to begin early


def finished_s(ready_s: Sequence[Array], exchange_s: Sequence[Array]) -> Array:
    """When the last bucket is exchanged: f_k = max(r_k, f_{k-1}) + T(m_k).

    Args:
        ready_s: [bucket], when its gradients are there; numbers or arrays of any one shape.
        exchange_s: [bucket], how long its exchange takes.
    """
    finished = np.zeros(np.broadcast_shapes(np.shape(ready_s[0]), np.shape(exchange_s[0])))
    for ready, lasts in zip(ready_s, exchange_s, strict=True):
        finished = np.maximum(ready, finished) + lasts
    return finished


def exposed_s(ready_s: Sequence[Array], exchange_s: Sequence[Array], backward_s: Array) -> Array:
    """What of the exchange ends after backward does, at `backward_s`: the part that a step waits for."""
    return np.maximum(0.0, finished_s(ready_s, exchange_s) - backward_s)


def in_other_buckets(
    ready: Array, bucket_bytes: Array, cap_bytes: float, first_bytes: float = FIRST_BUCKET_BYTES
) -> tuple[Array, Array]:
    """The same gradients in buckets of another size.

    Gradients arrive in between as measured buckets were ready: in proportion to their bytes.

    Args:
        ready: [..., bucket], rising, in any unit.
        bucket_bytes: [bucket].

    Returns:
        (ready [..., new bucket], bytes [new bucket]).
    """
    total = float(bucket_bytes.sum())
    first = min(first_bytes, cap_bytes, total)
    ends = np.append(np.arange(first, total * (1 - 1e-12), cap_bytes), total)
    arrived = np.concatenate([[0.0], np.cumsum(bucket_bytes)])
    # what arrives first is there one mean bucket before the first measured bucket was whole
    begin = ready[..., :1] - (ready[..., -1:] - ready[..., :1]) / max(1, len(bucket_bytes) - 1)
    moments = np.concatenate([begin, ready], axis=-1)
    place = np.clip(np.searchsorted(arrived, ends, side="left"), 1, len(bucket_bytes))
    share = (ends - arrived[place - 1]) / bucket_bytes[place - 1]
    new_ready = moments[..., place - 1] + share * (moments[..., place] - moments[..., place - 1])
    return new_ready, np.diff(ends, prepend=0.0)
