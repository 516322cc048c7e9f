"""Fabricated calibration data: what parts of known size would have been measured as."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpscale.scaling_model.links import Network, all_reduce_s
from dpscale.scaling_model.measurements import Contention, Exchange, Launch, Measurements, Step
from dpscale.scaling_model.prediction import Profile, Setting, predict

TRUE_NETWORK = Network(
    launch_s=2e-4,
    intra_latency_s=5e-5,
    inter_latency_s=3e-4,
    intra_bandwidth_B_per_s=4e9,
    inter_bandwidth_B_per_s=8e8,
)
TRUE_CONTENTION = {2: 0.06, 4: 0.15}
BUCKET_BYTES = [2**20, 8 * 2**20, 8 * 2**20]
TOPOLOGIES = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)]


def a_network(**changes: Any) -> Network:
    return replace(TRUE_NETWORK, **changes)


def a_profile() -> Profile:
    """One draw: 20 ms and 2 ms for each sample, three buckets, steps that differ by 4 % at most."""
    return Profile(
        fixed_s=np.array([0.02]),
        per_sample_s=np.array([0.002]),
        bucket_bytes=np.array(BUCKET_BYTES, float),
        ready_share=np.array([[0.5, 0.7, 0.9]]),
        deviation_share=np.array([[-0.04, -0.02, 0.0, 0.02, 0.04]]),
        contention_at=np.array(list(TRUE_CONTENTION), float),
        contention_share=np.array([list(TRUE_CONTENTION.values())]),
        stretch=np.array([0.1]),
        epoch_fixed_s=np.array([0.5]),
    )


def fabricated(noise: float = 0.03, seed: int = 0, topologies: list[tuple[int, int]] = TOPOLOGIES) -> Measurements:
    """What a_profile() on TRUE_NETWORK would be measured as, each value off by a random share."""
    rng, profile = np.random.default_rng(seed), a_profile()

    def off(value: float) -> float:
        return float(value * (1 + noise * rng.standard_normal()))

    def launch(nodes: int, each: int) -> Launch:
        setting = Setting(samples=100 * 16 * nodes * each, batch=16, scaling="weak")
        epoch_s = predict(profile, TRUE_NETWORK, setting, np.array([nodes]), np.array([each])).epoch_time_s[0, 0]
        return Launch(
            nodes=nodes, devices_per_node=each, batch_size_per_device=16, steps=100, epoch_time_s=off(epoch_s)
        )

    return Measurements(
        steps=[Step(batch_size=size, step_s=off(0.02 + 0.002 * size)) for size in (4, 16, 64) for _ in range(4)],
        exchanges=[
            Exchange(
                nodes=nodes,
                devices_per_node=each,
                nbytes=int(size),
                time_s=off(float(all_reduce_s(size, nodes, each, TRUE_NETWORK))),
                values=100,
            )
            for nodes, each in topologies
            if nodes * each > 1
            for size in 4 ** np.arange(4, 14)
            for _ in range(3)  # launches
        ],
        bucket_bytes=BUCKET_BYTES,
        ready_share=[[off(0.5), off(0.7), off(0.9)] for _ in range(30)],
        deviation_share=[float(rng.choice([-0.04, -0.02, 0.0, 0.02, 0.04])) for _ in range(400)],
        contention=[
            Contention(ranks_per_node=ranks, share=off(share))
            for ranks, share in TRUE_CONTENTION.items()
            for _ in range(30)
        ],
        stretch=[off(0.1) for _ in range(30)],
        epoch_fixed_s=[off(0.5) for _ in range(10)],
        launches=[launch(nodes, each) for nodes, each in topologies for _ in range(3)],
    )
