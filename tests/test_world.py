"""A rank's place in the process group, and that it leaves nothing of it behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from launching import SCRIPTS

TESTS = Path(__file__).parent
THREADS = """
import os
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from dpscale.world import process_group
from launching import small_trial


def threads():
    comms = (open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task"))
    return sorted(name for name in comms if "gloo" in name)


def train():
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    model.itself = model  # a cycle: only the collector finds it
    model(torch.ones(2, 2)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()


with process_group(small_trial("ddp", 1)):
    train()
    print(len(threads()))
print(len(threads()))
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads have names where there is a /proc")
def test_no_thread_of_the_group_outlives_it(monkeypatch):
    """Such a thread aborted a rank at its very end, once in some hundred launches."""
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0"}
    for name, value in {**place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", f"{SCRIPTS}:{TESTS}")
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    during, after = done.stdout.split()
    assert int(during) > 0
    assert after == "0"
