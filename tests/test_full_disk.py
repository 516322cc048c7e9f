"""Results on a disk of 1 MB: whatever does not fit is named with its disk, and what has its final name is whole."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from campaign.injector import INJECTED, small_disk
from launching import launch, small_trial
from pipeline import Checkout, small_config

from dpscale.disk import DiskIsFull, disk_of, if_there_is_room, refuse_full, room_for
from dpscale.files import write_atomically
from dpscale.launching.launches import Log
from dpscale.trial import Trial


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "results", "1m") as folder:
        yield folder


def leave(disk: Path, room_kB: int) -> None:
    """So much is free, and no more."""
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "ballast").write_bytes(bytes(max(0, free - room_kB * 1024)))


def names_path_and_disk(said: str, disk: Path) -> bool:
    return bool(
        re.search(rf"{disk}\S*: No space left on device: the disk at {disk} \(1\.0 MB\) is full; free space", said)
    )


def whole(folder: Path) -> int:
    """How many files have a final name; each of them parses."""
    count = 0
    for path in sorted(folder.rglob("*")):
        if path.is_dir() or path.name.startswith(".") or ".partial" in str(path) or path.name == "ballast":
            continue
        count += 1
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".parquet":
            pq.read_table(path)
        elif path.suffix == ".csv":
            text = path.read_text()
            assert text.endswith("\n"), path
            header, *rows = csv.reader(text.splitlines())
            assert {len(row) for row in rows} <= {len(header)}, path
    return count


def saved_trial(**changes: object) -> Trial:
    """By epochs, with a checkpoint after each."""
    epochs = {"epochs": 3, "warmup_epochs": 1, "steps": None, "warmup_steps": None, "checkpoint_interval_s": 0.0}
    return small_trial(**{**epochs, **changes})


# A launch


@pytest.mark.parametrize("room_kB", [0, 32])
def test_a_launch_says_what_has_no_room(room_kB: int, disk: Path, data: Path):
    """From the very first file to those of the ranks."""
    leave(disk, room_kB)
    done = launch(saved_trial(), data, disk / "r0")
    assert done.returncode == 1
    assert names_path_and_disk(done.stderr, disk), done.stderr
    assert "Traceback" not in done.stderr
    whole(disk)


@pytest.mark.parametrize("launcher", ["spawn", "torchrun"])
def test_a_checkpoint_that_has_no_room_ends_the_launch(launcher: str, disk: Path, data: Path):
    """A model and its optimiser's state are larger than the disk."""
    done = launch(saved_trial(launcher=launcher), data, disk / "r0")
    assert done.returncode == 1
    assert names_path_and_disk(done.stderr, disk), done.stderr
    assert not list(disk.rglob("epoch-*-step-*/manifest.json"))
    assert whole(disk) > 0


@pytest.mark.parametrize("file", [".attempt/steps.parquet", "r0/record.json"])
def test_a_record_that_has_no_room_is_not_there(file: str, disk: Path, data: Path):
    """Neither a rank's draft nor what the launch makes of it."""
    done = launch(small_trial("single", 1), data, disk / "r0", inject="fills_the_disk_for", DPSCALE_TEST_FILE=file)
    assert done.returncode == 1
    assert names_path_and_disk(done.stderr, disk), done.stderr
    assert not (disk / "r0" / "record.json").exists()
    whole(disk)


# Snakemake


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout.fresh(tmp_path / "dpscale", small_config())


def test_what_has_no_room_is_made_by_the_same_command_once_there_is_some(checkout: Checkout):
    target = "results/small/figures/speedup.svg"
    with small_disk(checkout.results(), "1m") as disk:
        for file in ("r0/record.json", "tables/summary.csv", "figures/speedup.svg"):
            injected = {"DPSCALE_TEST_INJECT": "fills_the_disk_for", "DPSCALE_TEST_FILE": file}
            done = checkout.snakemake("--cores", "2", target, PYTHONPATH=str(INJECTED), **injected)
            assert done.returncode != 0
            assert re.search(rf"{file}: No space left on device: the disk at {disk} \(1\.0 MB\) is full", done.output)
            assert not list(disk.rglob(Path(file).name))
            whole(disk)
            for ballast in disk.rglob("ballast"):
                ballast.unlink()
        checkout.run(target)
        assert whole(disk) > 0


def test_snakemakes_own_folder_without_room_is_named(checkout: Checkout):
    with small_disk(checkout.root / ".snakemake", "1m") as disk:
        leave(disk, 0)
        done = checkout.snakemake("--cores", "2", "tables")
        assert done.returncode != 0
        assert re.search(rf"{disk}\S*: No space left on device", done.output), done.output
        assert whole(checkout.results()) <= 1  # its README


# What says so


def test_the_disk_of_a_path_is_where_its_file_system_is_mounted(disk: Path):
    assert disk_of(disk / "not" / "there" / "yet") == disk
    assert disk_of(disk.parent / "beside") != disk


def test_a_file_that_has_no_room_leaves_the_one_before_it(disk: Path):
    write_atomically(disk / "file.json", b"{}")
    leave(disk, 0)
    with pytest.raises(DiskIsFull, match=r"file\.json: No space left on device: the disk at \S+results \(1\.0 MB\)"):
        write_atomically(disk / "file.json", bytes(2**20))
    assert (disk / "file.json").read_bytes() == b"{}"
    assert sorted(path.name for path in disk.iterdir()) == ["ballast", "file.json"]


def test_other_errors_of_files_stay_what_they_are(tmp_path: Path):
    with pytest.raises(PermissionError), room_for(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(ValueError, match="not whole"), if_there_is_room():
        raise ValueError("not whole")


def test_a_full_disk_is_told_from_one_with_room(disk: Path):
    refuse_full(disk)
    leave(disk, 4)
    with pytest.raises(DiskIsFull):
        refuse_full(disk)
    assert [path.name for path in disk.iterdir()] == ["ballast"]


def test_a_log_that_has_no_room_reads_its_ranks_to_their_end(disk: Path):
    """Else they wait for ever, once the pipe is full."""
    log = Log(disk / "trial.log")
    log.write("begins")
    leave(disk, 0)
    lines = iter(["x" * 5000] * 1000)
    log.relay(lines)  # type: ignore[arg-type]
    assert next(lines, None) is None
    with pytest.raises(DiskIsFull, match=r"trial\.log"):
        log.write("x" * 5000)
