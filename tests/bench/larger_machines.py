"""How long it takes to ask what if: up to 16,384 devices on 20 machines, in seconds of one core."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

from common import Comparison, Settings

from dpscale.scaling_model.calibration import calibrate
from dpscale.scaling_model.links import Network
from dpscale.scaling_model.measurements import Contention, Exchange, Launch, Measurements, Step
from dpscale.scaling_model.prediction import Setting
from dpscale.scaling_model.what_if import answers, placements

GOAL_S = 10.0
MACHINES, MOST_DEVICES, DEVICES_PER_NODE = 20, 16_384, 8
BUCKETS = 25  # of a model of 600 MB of gradients, in DDP's usual 25 MiB each
SETTING = Setting(samples=1_281_167, batch=64, scaling="weak")


def run(settings: Settings) -> Iterator[Comparison]:
    pairs, machines = [], MACHINES if settings.pairs > 1 else 1
    for _ in range(settings.pairs):
        began_s = time.process_time()
        count = sweep(machines)
        pairs.append((time.process_time() - began_s, 1.0))
    yield Comparison(
        name=f"epochs on up to {MOST_DEVICES:,} devices of {machines} machines, calibration and intervals included",
        first="CPU time of the sweep, s",
        second="1 s",
        pairs=pairs,
        goal=GOAL_S,
        goal_is="at most",
        facts={"answers": count, "buckets": BUCKETS, "cpus": os.cpu_count()},
    )


def sweep(machines: int) -> int:
    """How many answers there are."""
    calibration = calibrate(some_measurements())
    topologies = placements(MOST_DEVICES, DEVICES_PER_NODE)
    network = Network(
        launch_s=1e-5,
        intra_latency_s=3e-6,
        inter_latency_s=1e-5,
        intra_bandwidth_B_per_s=2e11,
        inter_bandwidth_B_per_s=1e9,
    )
    count = 0
    for machine in range(machines):
        faster = replace(network, inter_bandwidth_B_per_s=1e9 * (1 + machine))
        count += len(answers(calibration, faster, SETTING, topologies))
    return count


def some_measurements() -> Measurements:
    """Of a workload of 0.2 s per step and device, as a calibration on 1 to 8 devices would have them."""
    shares = [(1 + bucket) / BUCKETS * 0.6 + 0.35 for bucket in range(BUCKETS)]
    return Measurements(
        steps=[Step(batch_size=size, step_s=0.02 + 0.003 * size) for size in (16, 32, 64) for _ in range(3)],
        exchanges=[
            Exchange(nodes=nodes, devices_per_node=each, nbytes=nbytes, time_s=1e-4 * nodes + nbytes / 1e10, values=100)
            for nodes, each in ((1, 2), (1, 4), (2, 1), (2, 4))
            for nbytes in (4096, 2**20, 2**26)
        ],
        bucket_bytes=[25 * 2**20] * BUCKETS,
        ready_share=[shares] * 30,
        deviation_share=[0.01 * ((7 * step) % 13 - 6) / 6 for step in range(480)],
        contention=[Contention(ranks_per_node=count, share=0.01 * count) for count in (2, 4, 8) for _ in range(10)],
        stretch=[0.05] * 30,
        epoch_fixed_s=[0.5] * 6,
        launches=[
            Launch(
                nodes=1,
                devices_per_node=count,
                batch_size_per_device=64,
                steps=20018 // count,
                epoch_time_s=4240 / count,
            )
            for count in (1, 2, 4)
        ],
    )
