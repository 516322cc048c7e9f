"""The course of one rank's training: the segments that it has behind it, saved and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dpscale import measure
from dpscale.checkpoint import Checkpoints, Progress
from dpscale.evaluation import RankEvaluation
from dpscale.monitoring import monitor
from dpscale.training import Training
from dpscale.trial import Trial
from dpscale.world import World

Plan = tuple[bool, int, int]  # (warm-up?, first step, number of steps) of a segment


@dataclass(frozen=True, kw_only=True)
class Part:
    """One rank's segment."""

    warmup: bool  # planned as such, or begun or ended by an interruption
    interval: measure.Interval
    learning_rate: float  # of its last step
    evaluated: RankEvaluation | None

    def plain(self) -> dict[str, Any]:
        """As lists, numbers and texts. `from_plain` is its inverse."""
        return asdict(self)

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> Part:
        evaluated = None if data["evaluated"] is None else RankEvaluation(**data["evaluated"])
        return cls(**{**data, "interval": measure.Interval(**data["interval"]), "evaluated": evaluated})


class Course:
    """What a rank has done so far, and the checkpoints of it."""

    def __init__(
        self, trial: Trial, training: Training, usage: monitor.CpuUsage, checkpoints: Checkpoints | None, world: World
    ) -> None:
        self.trial, self.training, self.usage, self.world = trial, training, usage, world
        self.checkpoints = checkpoints
        self.parts: list[Part] = []
        self.begun: measure.Interval | None = None  # the steps of a segment that an interruption cut in two
        self.progress = Progress(0, 0, 0)
        self.checkpoint_times_s: list[float] = []  # the slowest rank's, of each
        self.resumed_at: int | None = None  # the segment that an interruption has touched
        self._saved_s = measure.seconds()

    def take_up(self, plans: Sequence[Plan], say: Callable[[str], None]) -> None:
        """Go on from the checkpoint that came farthest and leaves something to be timed; else from the start."""
        if self.checkpoints is None:
            return
        mine = next(self._acceptable(plans, say), None) if self.world.rank == 0 else None
        if (chosen := self.world.broadcast(mine)) is None:
            return
        progress, folder = chosen
        data = self.training.load(folder)
        self.progress, self.resumed_at = progress, progress.segment
        self.parts = [Part.from_plain(part) for part in data["parts"]]
        self.begun = None if data["begun"] is None else measure.Interval(**data["begun"])
        self.usage.rank_s, self.usage.machine_s = data["cpu_s"]
        self.checkpoint_times_s = data["checkpoint_times_s"]
        say(f"resumed after {self.progress.segment} epochs and {self.progress.step} steps")

    def _acceptable(self, plans: Sequence[Plan], say: Callable[[str], None]) -> Iterator[tuple[Progress, Path]]:
        assert self.checkpoints is not None
        for progress, folder in self.checkpoints.found(say):
            if leaves_something_timed(plans, progress):
                yield progress, folder
            else:
                say(f"{folder}: an epoch after an interruption is in no timing, and no other would be left: left out")

    def rest_of(self, plans: Sequence[Plan]) -> Iterator[tuple[bool, bool, int, int]]:
        """What is to be done: (planned as warm-up?, warm-up?, first step, number of steps) of each segment that is left.

        An epoch that an interruption has cut, or the first after one, counts as warm-up: caches are cold again.
        """
        begin = self.progress
        for index, (planned_warmup, first_step, num_steps) in enumerate(plans[begin.segment :], start=begin.segment):
            taken = begin.step if index == begin.segment else 0
            yield planned_warmup, planned_warmup or index == self.resumed_at, first_step + taken, num_steps - taken

    def ended(self, part: Part) -> None:
        """A segment is whole."""
        if self.begun is not None:
            part = replace(part, interval=joined(self.begun, part.interval))
            self.begun = None
        self.parts.append(part)
        self.progress = Progress(len(self.parts), 0, self._timed)

    def interrupted(self, interval: measure.Interval) -> None:
        """A segment was cut in two after these steps."""
        self.begun = interval if self.begun is None else joined(self.begun, interval)
        self.progress = Progress(len(self.parts), len(self.begun.samples), self._timed)

    @property
    def _timed(self) -> int:
        return sum(not part.warmup for part in self.parts)

    def is_due(self) -> bool:
        """Whether the last checkpoint was long enough ago; all ranks call it together and hear the same."""
        if self.checkpoints is None or self.trial.checkpoint_interval_s is None:
            return False
        since_s = self.world.largest(measure.seconds() - self._saved_s)
        return since_s >= self.trial.checkpoint_interval_s

    def save(self) -> None:
        """A checkpoint of all that is behind the ranks. All call it together."""
        checkpoints = self.checkpoints
        assert checkpoints is not None
        own = {
            "parts": [part.plain() for part in self.parts],
            "begun": None if self.begun is None else asdict(self.begun),
            "cpu_s": [self.usage.rank_s, self.usage.machine_s],
            "checkpoint_times_s": self.checkpoint_times_s,
        }
        _, (started_s, ended_s) = measure.time_call(
            lambda: checkpoints.save(self.progress, lambda to: self.training.save(to, own), self.world), self.world
        )
        self.checkpoint_times_s.append(self.world.largest(ended_s - started_s))
        self._saved_s = measure.seconds()


def leaves_something_timed(plans: Sequence[Plan], progress: Progress) -> bool:
    """Whether a training that goes on from there ends with a timed segment that no interruption has touched."""
    return progress.timed > 0 or any(not warmup for warmup, _, _ in plans[progress.segment + 1 :])


def joined(first: measure.Interval, second: measure.Interval) -> measure.Interval:
    """The steps of both, in the time of the second alone: what lies between them is no training."""
    return replace(
        second,
        phase_times_s=[*first.phase_times_s, *second.phase_times_s],
        samples=[*first.samples, *second.samples],
        losses=[*first.losses, *second.losses],
    )
