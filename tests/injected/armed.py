"""The one fault that a round of a campaign has in store (tests/campaign/plan.py), from inside the processes that it strikes.

Read with `inject=counts_launches,meets_its_fault,dies_while_writing`. The variable DPSCALE_CAMPAIGN holds the fault, and the
folder where it is put down that it has struck.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from changes.moments import pid_of_launch
from changes.registering import after

VARIABLE, MARK, LAUNCH = "DPSCALE_CAMPAIGN", "DPSCALE_TEST_RUN", "DPSCALE_CAMPAIGN_LAUNCH"
BALLAST = "ballast"
IN_A_WRITE = "everything is killed while a file is written"


def armed() -> dict[str, Any]:
    return json.loads(os.environ[VARIABLE])


def count(name: str) -> int:
    """How often it was counted in this round before; those who count at the same moment get different numbers."""
    folder, number = Path(armed()["folder"]), 0
    while True:
        try:
            (folder / f"{name}-{number}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


def is_first(where: str) -> bool:
    """Whether the fault has not struck yet; from now on it has, there."""
    try:
        with (Path(armed()["folder"]) / "struck").open("x") as file:
            file.write(where)
    except FileExistsError:
        return False
    return True


# Acts


def kill_everything() -> None:
    """Of this campaign's run, those who watch others first, and this process last."""
    import psutil

    mine = os.environ[MARK]
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mine:
                found.append((process.create_time(), process.pid))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    for _, pid in sorted(found):
        kill(pid)
    os.kill(os.getpid(), signal.SIGKILL)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def pid_of_snakemake() -> int:
    """The one that was started; those between it and this process are its own."""
    import psutil

    return next(
        process.pid
        for process in reversed(psutil.Process().parents())
        if any(part.endswith("/snakemake") for part in process.cmdline())
    )


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def cut_the_checkpoint() -> None:
    """The newest one, as a file system may leave it when the machine goes down; it does."""
    saved = sorted(Path(os.environ["DPSCALE_DRAFTS"]).parent.glob(".checkpoints/epoch-*"))
    if saved:
        cut(saved[-1] / "model.pt")
    kill_everything()


def fill_the_disk(root: Path) -> None:
    import errno

    with (root / BALLAST).open("wb", buffering=0) as file:
        size = 2**20
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2


ACTS: dict[str, Callable[[], None]] = {
    "a rank is killed": lambda: kill(os.getpid()),
    "a rank is told to end": lambda: kill(os.getpid(), signal.SIGTERM),
    "the launcher is killed": lambda: kill(os.getppid()),
    "launch.py is killed": lambda: kill(pid_of_launch()),
    "launch.py is told to end": lambda: kill(pid_of_launch(), signal.SIGTERM),
    "Snakemake is killed": lambda: kill(pid_of_snakemake()),
    "Snakemake is told to end": lambda: kill(pid_of_snakemake(), signal.SIGTERM),
    "Snakemake's process group is killed": lambda: os.killpg(os.getpgid(pid_of_snakemake()), signal.SIGKILL),
    "everything is killed": kill_everything,
    "everything is killed, and the checkpoint is cut": cut_the_checkpoint,
    "the disk is full": lambda: fill_the_disk(Path(armed()["root"])),
}


# Moments


@after("dpscale.files")
def fills_the_disk_for() -> None:
    """As soon as a file whose path ends with DPSCALE_TEST_FILE is to be put in place, its disk has no room left."""
    from dpscale import files

    write = files.write_atomically

    def changed(path, content):
        if str(path).endswith(os.environ["DPSCALE_TEST_FILE"]):
            fill_the_disk(path.parent)
        write(path, content)

    files.write_atomically = changed


@after("dpscale.launching.launches")
def counts_launches() -> None:
    """Each launch of the round has its number."""
    from dpscale.launching import launches

    environment_for = launches.environment_for

    def numbered(*arguments):
        return environment_for(*arguments) | {LAUNCH: str(count("launch"))}

    launches.environment_for = numbered


@after("dpscale.training")
def meets_its_fault() -> None:
    """In the planned step of the planned rank, in the first launch from the planned one on that comes so far; the gate's
    trainings have fewer steps."""
    from dpscale.training import Training

    forward = Training.forward

    def changed(self, part, last):
        fault = armed()["fault"]
        self.calls = getattr(self, "calls", 0) + 1
        launch, rank = int(os.environ[LAUNCH]), int(os.environ["RANK"])
        here = (rank, self.calls) == (fault["rank"] % self.world.size, fault["step"])
        if (
            here
            and launch >= fault["launch"]
            and fault["kind"] in ACTS
            and is_first(f"launch {launch}, rank {rank}, step {self.calls}")
        ):
            ACTS[fault["kind"]]()
        return forward(self, part, last)

    Training.forward = changed


@after("dpscale.files")
def dies_while_writing() -> None:
    """The planned one of all files that are put in place, by whichever process, is half written when everything ends."""
    from dpscale import files

    write = files.write_atomically

    def changed(path, content):
        fault = armed()["fault"]
        here = fault["kind"] == IN_A_WRITE and count("write") == fault["write"]
        if here and is_first(f"{path.parent.name}/{path.name}"):
            path.with_name(f".{path.name}.partial").write_bytes(content[: len(content) // 2])
            kill_everything()
        write(path, content)

    files.write_atomically = changed
