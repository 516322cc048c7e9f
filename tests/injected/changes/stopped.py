"""Signals and kills in the midst of a training."""

import os
import time

from changes.moments import in_forward, in_step_once, pid_of_launch
from changes.registering import after


@after("dpscale.training")
def asks_to_stop() -> None:
    import signal

    in_step_once(lambda: os.kill(os.getpid(), signal.SIGUSR1))


@after("dpscale.training")
def launch_is_terminated() -> None:
    import signal

    in_step_once(lambda: os.kill(pid_of_launch(), signal.SIGTERM))


@after("dpscale.training")
def launch_is_killed() -> None:
    import signal

    in_step_once(lambda: os.kill(pid_of_launch(), signal.SIGKILL))


@after("dpscale.training")
def everything_hears_a_signal() -> None:
    """As SLURM does it: DPSCALE_TEST_SIGNAL goes to every process of a job step at once."""
    import signal

    import psutil

    number = signal.Signals[os.environ["DPSCALE_TEST_SIGNAL"]]

    def send() -> None:
        started = psutil.Process(pid_of_launch())
        for process in [started, *started.children(recursive=True)]:
            process.send_signal(number)

    in_step_once(send)


@after("dpscale.training")
def waits_to_be_stopped() -> None:
    """Each rank waits in its step DPSCALE_TEST_STEP, which a resumed one has no more, until it is asked to stop."""
    from dpscale.stopping import StopRequest

    ask, asked = StopRequest._ask, []

    def heard(self, *arguments):
        asked.append(arguments)
        ask(self, *arguments)

    def wait() -> None:
        print("waits to be stopped")
        deadline = time.monotonic() + 200
        while not asked and time.monotonic() < deadline:
            time.sleep(0.05)

    StopRequest._ask = heard
    in_forward(int(os.environ["DPSCALE_TEST_STEP"]), wait)


@after("dpscale.training")
def is_killed() -> None:
    import signal

    in_step_once(lambda: os.kill(os.getpid(), signal.SIGKILL))
