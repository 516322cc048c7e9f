"""Does what the plan says, from outside: damage between the rounds, and kills at any time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil
from pipeline import Checkout

from campaign.plan import Damage, Fault

INJECTED = Path(__file__).parents[1] / "injected"
sys.path.append(str(INJECTED))
from armed import BALLAST, VARIABLE, fill_the_disk, kill  # noqa: E402 - the path above first

CHANGES = "counts_launches,meets_its_fault,dies_while_writing"


def arming(fault: Fault | None, folder: Path, root: Path) -> dict[str, str]:
    """Variables under which what a command starts meets this fault; in `folder` it is put down that it has struck."""
    folder.mkdir(parents=True)
    if fault is None:
        return {"PYTHONPATH": ""}
    return {
        "PYTHONPATH": str(INJECTED),
        "DPSCALE_TEST_INJECT": CHANGES,
        VARIABLE: json.dumps({"fault": asdict(fault), "folder": str(folder), "root": str(root)}),
    }


# --- at any time ------------------------------------------------------------------------------------------------------


def strike(fault: Fault, checkout: Checkout) -> str | None:
    """Do it now; returns to what it was done, or None if there is nothing any more."""
    running = sorted(checkout.processes(), key=lambda process: process.create_time())
    snakemakes = [process for process in running if _is_snakemake(process)]
    if fault.kind == "the disk is full at any time":
        fill_the_disk(checkout.root)
        return str(checkout.root)
    if fault.kind == "everything is killed at any time":
        chosen = running
    elif fault.kind == "Snakemake is killed at any time":
        chosen = snakemakes[:1]
    else:  # make itself and its shells leave a Snakemake behind that lives, and that is right
        below = [process for process in running if any(map(_is_snakemake, [process, *_parents(process)]))]
        chosen = below[int(fault.which * len(below)) :][:1]
    for process in chosen:
        kill(process.pid)
    return ", ".join(map(_named, chosen)) or None


def _is_snakemake(process: psutil.Process) -> bool:
    try:
        return any(part.endswith("/snakemake") for part in process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _parents(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.parents()
    except psutil.NoSuchProcess:
        return []


def _named(process: psutil.Process) -> str:
    try:
        return " ".join(Path(part).name for part in process.cmdline()[:3])
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return f"process {process.pid}"


# --- between rounds ---------------------------------------------------------------------------------------------------


def damage(damage: Damage, checkout: Checkout) -> str | None:
    """Do it; returns to what it was done, or None if there is nothing of the kind yet."""
    return DAMAGES[damage.kind](checkout, damage.which)


def _one_of(checkout: Checkout, pattern: str, which: float) -> Path | None:
    found = sorted(checkout.results().glob(f"*/trials/*/*/*/*/{pattern}"))
    return found[int(which * len(found))] if found else None


def _cutting(pattern: str) -> Callable[[Checkout, float], str | None]:
    def cut(checkout: Checkout, which: float) -> str | None:
        path = _one_of(checkout, pattern, which)
        if path is None:
            return None
        os.truncate(path, path.stat().st_size // 2)
        return str(path.relative_to(checkout.root))

    return cut


def _put_into_anothers_folder(checkout: Checkout, which: float) -> str | None:
    found = sorted(checkout.results().glob("*/trials/*/*/*/*/record.json"))
    if len(found) < 2:
        return None
    place = int(which * len(found))
    source, target = found[place].parent, found[place - 1].parent
    for name in ("record.json", "steps.parquet", "monitor.parquet"):
        shutil.copy(source / name, target / name)
    return f"{source.relative_to(checkout.root)} in {target.relative_to(checkout.root)}"


def _delete_snakemakes_memory(checkout: Checkout, which: float) -> str | None:
    shutil.rmtree(checkout.root / ".snakemake", ignore_errors=True)
    return ".snakemake"


def _leave_stray_files(checkout: Checkout, which: float) -> str | None:
    folder = next((path.parent for path in checkout.results().glob("*/trials/*/*/*/*/trial.log")), None)
    if folder is None:
        return None
    for path in (folder / ".record.json.partial", folder / "core.17", folder.parent / "r99" / "notes.txt"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("a stray file\n")
    return str(folder.relative_to(checkout.root))


DAMAGES: dict[str, Callable[[Checkout, float], str | None]] = {
    "a record is cut": _cutting("record.json"),
    "steps are cut": _cutting("steps.parquet"),
    "samples are cut": _cutting("monitor.parquet"),
    "a log is cut": _cutting("trial*.log"),
    "a checkpoint is cut": _cutting(".checkpoints/epoch-*/model.pt"),
    "a history is cut": _cutting(".checkpoints/attempts.json"),
    "a record lies in another trial's folder": _put_into_anothers_folder,
    ".snakemake is deleted": _delete_snakemakes_memory,
    "stray files lie about": _leave_stray_files,
}


# --- a disk of its own ------------------------------------------------------------------------------------------------


def may_mount() -> bool:
    return os.geteuid() == 0 and shutil.which("mount") is not None


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size at the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def free_the_disk(root: Path) -> None:
    (root / BALLAST).unlink(missing_ok=True)
