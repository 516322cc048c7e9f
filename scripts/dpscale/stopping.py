"""How ranks stop at the same step when one of them is asked to, with no word exchanged before it is."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from dpscale.launching.attempt import STOP_SIGNALS, write_rank
from dpscale.world import World

HEARS_OF_OTHERS_EVERY_S = 2.0  # on several nodes, of which the signal may have reached one


class StopRequest:
    """This rank's ear for the signals that ask a training to save itself and end.

    Until one comes a step costs a look at a flag. Then each rank puts down how many steps it has taken, goes on, and
    looks at each step's end whether all have done so: the latest of these steps, and as many more as a rank can be ahead
    of another that has not heard yet, is where all stop. Nobody waits, so that no rank hangs in a step that needs others.
    """

    def __init__(self, world: World, steps_apart: int | None, drafts: Path) -> None:
        """Hear from now on, and say so in the drafts.

        Args:
            steps_apart: how many steps a rank can be ahead of another; None = any number, so it stops between segments.
        """
        self.asked = False
        self._world, self._steps_apart = world, steps_apart
        self._last: int | None = None
        self._told = False
        self._over = threading.Event()
        for number in STOP_SIGNALS:
            signal.signal(number, self._ask)
        write_rank(drafts, world.rank)
        if world.nodes > 1:
            threading.Thread(target=self._hear_of_others, daemon=True).start()

    def close(self) -> None:
        """Before the process group ends. Signals that come later find the training done."""
        self._over.set()
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    @property
    def _store(self) -> Store:
        assert self._world.store is not None
        return self._world.store

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True

    def _hear_of_others(self) -> None:
        store = self._store
        while not self._over.wait(HEARS_OF_OTHERS_EVERY_S):
            try:
                if self.asked:
                    store.set("stop", "asked")
                elif store.check(["stop"]):
                    self.asked = True
            except dist.DistError:
                return  # the world is ending, and says so itself

    def after(self, before: int, steps: int) -> bool:
        """Whether all ranks stop here: `steps` after the step `before` of the training."""
        if not self.asked or self._steps_apart is None:
            return False
        if self._world.size == 1:
            return True
        if self._last is None:
            self._last = self._agreed(before + steps)
        return before + steps == self._last

    def _agreed(self, steps: int) -> int | None:
        store, size = self._store, self._world.size
        if not self._told:
            store.set(f"stopped/{self._world.rank}", str(steps))
            self._told = True
        keys = [f"stopped/{rank}" for rank in range(size)]
        if not store.check(keys):
            return None
        assert self._steps_apart is not None
        return max(int(store.get(key)) for key in keys) + self._steps_apart

    def between_segments(self) -> bool:
        """Whether any rank was asked; all ranks call it together."""
        return self._world.largest(float(self.asked)) > 0
