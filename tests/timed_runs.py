"""A run of collectives for tests: two ranks on this machine, one operation, two sizes."""

from __future__ import annotations

from typing import Any

from dpscale.collectives.run import Run


def a_run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "experiment": "quick",
        "launcher": "spawn",
        "nodes": 1,
        "devices_per_node": 2,
        "world_size": 2,
        "device": "cpu",
        "backend": "gloo",
        "threads_per_rank": 1,
        "operations": ["all_reduce"],
        "dtypes": ["float32"],
        "sizes": [4096, 65536],
        "blocks": 10,
        "seconds_per_size": 0.05,
        "timeout_s": 120.0,
        "collective_timeout_s": 60.0,
    }
    return Run(**values | changes)
