"""What a seed has in store: faults while the command runs, one to a round, and damage between the rounds."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

IN_A_STEP = (  # from inside: tests/injected/armed.py
    "a rank is killed",
    "a rank is told to end",
    "the launcher is killed",
    "launch.py is killed",
    "launch.py is told to end",
    "Snakemake is killed",
    "Snakemake is told to end",
    "Snakemake's process group is killed",
    "everything is killed",
    "everything is killed, and the checkpoint is cut",
    "the disk is full",
)
IN_A_WRITE = ("everything is killed while a file is written",)
AT_ANY_TIME = (  # from outside: injector.py
    "Snakemake is killed at any time",
    "one process is killed at any time",
    "everything is killed at any time",
    "the disk is full at any time",
)
BETWEEN = (
    "a record is cut",
    "steps are cut",
    "samples are cut",
    "a log is cut",
    "a checkpoint is cut",
    "a history is cut",
    "a record lies in another trial's folder",
    ".snakemake is deleted",
    "stray files lie about",
)
ON_A_FULL_DISK = {kind for kind in (*IN_A_STEP, *AT_ANY_TIME) if "disk" in kind}
ROUNDS, DAMAGES = 4, 4


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One that strikes while the command runs."""

    kind: str
    launch: int  # of the round, from 0; one that goes on from a checkpoint may have fewer steps: then the next one
    rank: int  # modulo the ranks that there are
    step: int  # of what that launch has to do, from 3 on
    write: int  # of all files that the round puts in place, from 0
    after_trials: float  # since the command began, in the time that an undisturbed one takes for a trial
    which: float  # of the processes, in [0, 1)


@dataclass(frozen=True, kw_only=True)
class Damage:
    """One that is done before a round begins, when nothing runs."""

    kind: str
    round: int  # the one after the last is the undisturbed one
    which: float  # of the files that there are, in [0, 1)


@dataclass(frozen=True)
class Plan:
    seed: int
    faults: tuple[Fault, ...]  # one to a round
    damages: tuple[Damage, ...]


def plan_of(seed: int, can_fill_disks: bool, steps: int) -> Plan:
    """The same of the same seed. Kinds go round, so that few seeds in a row meet all of them.

    Args:
        steps: of one rank's whole training.
    """
    random = Random(seed)
    kinds = [
        kind for kind in (*IN_A_STEP, *IN_A_WRITE * 3, *AT_ANY_TIME) if can_fill_disks or kind not in ON_A_FULL_DISK
    ]
    faults = tuple(
        Fault(
            kind=kind,
            launch=random.randrange(4),
            rank=random.randrange(2),
            step=random.randint(3, steps),
            write=random.randrange(30),
            after_trials=random.uniform(0, 4),
            which=random.random(),
        )
        for kind in _in_turn(kinds, seed, ROUNDS)
    )
    damages = tuple(
        Damage(kind=kind, round=place + 1, which=random.random())
        for place, kind in enumerate(_in_turn(BETWEEN, seed, DAMAGES))
    )
    return Plan(seed, faults, damages)


def _in_turn(kinds: tuple[str, ...] | list[str], seed: int, count: int) -> list[str]:
    """The seed's own of an endless row in which all kinds, in an order of each turn's own, come again and again."""
    turns, place = divmod(seed * count, len(kinds))
    row: list[str] = []
    for turn in (turns, turns + 1):
        shuffled = list(kinds)
        Random(f"turn {turn}").shuffle(shuffled)
        row += shuffled
    return row[place : place + count]
