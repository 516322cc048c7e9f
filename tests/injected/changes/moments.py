"""When a change strikes: in a step of the chosen rank, once, in a launch."""

import os
from collections.abc import Callable
from pathlib import Path

from changes.registering import is_chosen_rank, this_rank


def in_forward(number: int, act: Callable[[], None]) -> None:
    """`act` at the start of the chosen rank's step `number`; the gate's trainings have fewer."""
    from dpscale.training import Training

    forward = Training.forward

    def changed(self, part, last):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == number and is_chosen_rank():
            act()
        return forward(self, part, last)

    Training.forward = changed


def once(name: str) -> bool:
    """Whether no launch into this folder has come here before."""
    path = Path(os.environ["DPSCALE_TEST_OUT"]) / f"{name}-{this_rank()}.once"
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def in_step_once(act: Callable[[], None]) -> None:
    """`act` in the chosen rank's step DPSCALE_TEST_STEP, in the first launch alone."""
    in_forward(int(os.environ["DPSCALE_TEST_STEP"]), lambda: act() if once("came-here") else None)


def pid_of_launch() -> int:
    import psutil

    return next(
        process.pid for process in psutil.Process().parents() if any("launch.py" in part for part in process.cmdline())
    )
