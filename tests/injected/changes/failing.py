"""What raises, is short of something, or is not what it seems."""

import os

from changes.moments import in_forward
from changes.registering import after, is_chosen_rank


@after("dpscale.training")
def raises() -> None:
    def fail() -> None:
        raise RuntimeError("planted in the third step")

    in_forward(3, fail)


@after("dpscale.planning.contradictions")
def searches_on_the_cpu() -> None:
    """The plan takes `largest` on a CPU too; what is out of memory there, `little_memory` says."""
    from dpscale.planning import contradictions

    contradictions.SEARCHES_ON.add("cpu")


@after("dpscale.training")
def little_memory() -> None:
    """A device of the chosen rank holds DPSCALE_TEST_HOLDS samples."""
    import torch

    from dpscale.training import Training

    forward = Training.forward

    def limited(self, part, last):
        if len(part[1]) > int(os.environ["DPSCALE_TEST_HOLDS"]) and is_chosen_rank():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(self, part, last)

    Training.forward = limited


@after("dpscale.training")
def ends_early() -> None:
    in_forward(3, lambda: os._exit(7))


@after("dpscale.launching.attempt")
def first_port_is_taken() -> None:
    """Somebody listens on the first port that is chosen: DPSCALE_TEST_PORT."""
    from dpscale.launching import attempt

    choose, taken = attempt.free_port, [int(os.environ["DPSCALE_TEST_PORT"])]
    attempt.free_port = lambda: taken.pop() if taken else choose()


@after("snakemake_interface_executor_plugins.executors.remote")
def checks_often() -> None:
    """Snakemake asks SLURM every second for its jobs, however long they take."""
    from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

    RemoteExecutor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)


@after("dpscale.monitoring.sampling")
def monitor_breaks() -> None:
    from dpscale.monitoring import sampling

    def broken(*arguments):
        raise OSError("planted")

    sampling.sample_until_told = broken
