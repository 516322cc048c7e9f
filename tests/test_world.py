"""A rank's place in the process group, and that it leaves nothing of it behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from launching import SCRIPTS

from dpscale.strategies import STRATEGIES

TESTS = Path(__file__).parent
# torch's cache of sharded operations holds fsdp's mesh, and DeepSpeed groups of its own; the others do not run on one CPU
KEEP_IT = {"fsdp", "deepspeed", "apex", "horovod", "data_parallel"}
THREADS = """
import os
import sys

from importlib import import_module

import torch

from dpscale.strategies import STRATEGIES
from dpscale.training import Training
from dpscale.workloads.samples import Samples
from dpscale.world import process_group
from launching import small_trial


def name_of(task):
    try:
        return open(f"/proc/self/task/{task}/comm").read().strip()
    except FileNotFoundError:  # it ended after it was listed
        return ""


def threads():
    return sorted(name for name in map(name_of, os.listdir("/proc/self/task")) if "gloo" in name)


def train(world):
    training = Training(trial, Samples("images", (1, 28, 28), 10), world, steps_per_epoch=1)
    training.gradients_of((torch.ones(8, 1, 28, 28), torch.zeros(8, dtype=torch.long)))
    training.update()
    training.itself = training  # a cycle: only the collector finds it


trial = small_trial(sys.argv[1], 1)
for module in STRATEGIES[trial.base].imported_first:
    import_module(module)
with process_group(trial) as world:
    train(world)
    print(len(threads()))
print(len(threads()))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads have names where there is a /proc")
@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in KEEP_IT])
def test_no_thread_of_the_group_outlives_it(monkeypatch, strategy):
    """Such a thread aborted a rank at its very end, once in some hundred launches."""
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    for name, value in {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{SCRIPTS}:{TESTS}")
    done = subprocess.run([sys.executable, "-c", THREADS, strategy], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    during, after = done.stdout.split()
    assert int(during) > 0
    assert after == "0"
