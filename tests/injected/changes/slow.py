"""What is late, hangs, or has too little to compute with."""

import os
import time

from changes.moments import in_forward
from changes.registering import after, is_chosen_rank


@after("dpscale.training")
def hangs() -> None:
    in_forward(3, lambda: time.sleep(3600))


@after("dpscale.training")
def hangs_deaf_to_signals() -> None:
    import signal

    def hang() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(3600)

    in_forward(3, hang)


@after("dpscale.world")
def closes_slowly() -> None:
    """A rank that fails holds its report back until the others have noticed that it is gone."""
    import torch.distributed as dist

    destroy = dist.destroy_process_group

    def slow():
        destroy()
        time.sleep(1)

    dist.destroy_process_group = slow


@after("dpscale.workloads.loading")
def slow_loader() -> None:
    """Every batch is 20 ms late."""
    from dpscale.workloads.loading import Loader

    batches = Loader.batches

    def late(self, *arguments):
        for batch in batches(self, *arguments):
            time.sleep(0.02)
            yield batch

    Loader.batches = late


@after("dpscale.workloads.loading")
def slow_epoch_end() -> None:
    """The training's loader takes 100 ms to end."""
    from dpscale.workloads.loading import TrainingStream

    batches = TrainingStream.batches

    def ends_late(self, *arguments):
        yield from batches(self, *arguments)
        time.sleep(0.1)

    TrainingStream.batches = ends_late


@after("dpscale.training")
def slow_rank() -> None:
    """The chosen rank sleeps 20 ms before each backward pass."""
    from dpscale.training import Training

    backward = Training.backward

    def late(self, loss, last):
        if is_chosen_rank():
            time.sleep(0.02)
        backward(self, loss, last)

    Training.backward = late


@after("dpscale.training")
def slow_hook() -> None:
    """DDP's exchange of each bucket sleeps 15 ms first."""
    from dpscale.strategies import ddp, observed

    def slow(state, bucket):
        time.sleep(0.015)
        return observed.averaged(state, bucket)

    ddp.HookedReplica.hook = lambda self: (None, slow)


@after("dpscale.training")
def one_core() -> None:
    """All ranks on the same core of those that they may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@after("dpscale.monitoring.sampling")
def monitor_starts_late() -> None:
    """The monitor of the chosen rank's node takes two seconds to start."""
    from dpscale.monitoring import sampling

    sample = sampling.sample_until_told

    def late(*arguments):
        if is_chosen_rank():
            time.sleep(2)
        sample(*arguments)

    sampling.sample_until_told = late


@after("dpscale.training")
def starts_late() -> None:
    """The chosen rank is two seconds late for its first step."""
    from dpscale.training import Training

    build = Training.__init__

    def late(self, *arguments):
        build(self, *arguments)
        if is_chosen_rank():
            time.sleep(2)

    Training.__init__ = late
