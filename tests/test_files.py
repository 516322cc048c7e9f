"""What is made of other files and was cut or edited since is refused by name; one writer puts all files in place."""

from __future__ import annotations

import hashlib
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpscale import files
from dpscale.damage import what_is_wrong
from dpscale.disk import DiskIsFull
from dpscale.errors import Damaged, UserError, entry_point
from dpscale.files import (
    SEAL,
    is_as_made,
    refuse_output,
    seal_of,
    sealed_by,
    whole_file,
    write_atomically,
    write_sealed,
)
from dpscale.forecasting.calibration_file import FILE, read_calibrations, write_calibrations
from dpscale.forecasting.ledger import LEDGER, read_ledger
from dpscale.tables import read_table

ROOT = Path(__file__).parents[1]
TABLE = b"strategy,epoch_time_s\nsingle,1.5\nddp,1.0\n"


def without_its_last_line(path: Path) -> None:
    """Still a table that parses."""
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


def with_another_number(path: Path) -> None:
    path.write_text(path.read_text().replace("1.5", "0.5"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "small" / "tables" / "summary.csv"
    path.parent.mkdir(parents=True)
    write_sealed(path, TABLE)
    return path


def test_a_seal_is_what_sha256sum_writes_and_checks(table: Path):
    assert table.read_bytes() == TABLE
    assert seal_of(table).read_text() == f"{hashlib.sha256(TABLE).hexdigest()}  summary.csv\n"
    assert [sealed_by(seal) for seal in table.parent.glob(SEAL)] == [table]
    done = subprocess.run(
        ["sha256sum", "-c", seal_of(table).name], cwd=table.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout == "summary.csv: OK\n"


@pytest.mark.parametrize("damage", [without_its_last_line, with_another_number])
def test_a_table_that_was_cut_or_edited_is_not_read(damage: Callable[[Path], None], table: Path):
    assert len(read_table(table.parent, "summary")) == 2
    damage(table)
    with pytest.raises(Damaged, match=rf"{table}: cut or changed since it was made; delete it and run snakemake again"):
        read_table(table.parent, "summary")


@pytest.mark.parametrize("kept", range(len(TABLE)))
def test_without_its_seal_a_table_that_ends_within_a_row_is_not_read(kept: int, table: Path):
    """Also within the last number, half of which is one."""
    seal_of(table).unlink()
    table.write_bytes(TABLE[:kept])
    if kept and TABLE[:kept].endswith(b"\n"):
        assert len(read_table(table.parent, "summary")) < 2  # where rows end, the seal alone could tell
        return
    said = f"{table}: not a whole table: a row of it is cut; delete it and run snakemake again"
    with pytest.raises(Damaged, match=said):
        read_table(table.parent, "summary")
    assert what_is_wrong(table, table.parents[2]) == said.partition(";")[0]


@pytest.mark.parametrize("row", [b"ddp\n", b"ddp,1.0,2.0\n", b'"ddp,1.0\n', b"\xff,1.0\n"])
def test_nor_is_one_with_a_row_of_another_length(row: bytes, table: Path):
    seal_of(table).unlink()
    table.write_bytes(TABLE + row)
    with pytest.raises(Damaged, match=f"{table}: not a whole table: a row of it is cut"):
        read_table(table.parent, "summary")


def test_a_whole_table_of_another_hand_needs_no_seal(table: Path):
    """With cells of several lines, and with lines that end as on Windows."""
    seal_of(table).unlink()
    table.write_bytes(TABLE.replace(b"ddp", b'"two\nlines, and a ""quote"""').replace(b"\n", b"\r\n"))
    assert len(read_table(table.parent, "summary")) == 2


def test_no_figure_is_made_of_a_table_that_was_cut(table: Path, tmp_path: Path):
    without_its_last_line(table)
    command = [sys.executable, ROOT / "scripts/plot.py", "speedup", "--tables", table.parent, "--out"]
    done = subprocess.run([*command, tmp_path / "speedup.svg"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"{table}: cut or changed since it was made; delete it and run snakemake again\n"
    assert not (tmp_path / "speedup.svg").exists()


def test_a_calibration_that_was_edited_is_not_read(tmp_path: Path):
    path = tmp_path / FILE
    write_calibrations(path, [], {"experiment": "small"})
    assert read_calibrations(path) == []
    path.write_text(path.read_text().replace("small", "large"))
    with pytest.raises(UserError, match=f"{path}: cut or changed since it was made"):
        read_calibrations(path)


def test_predictions_that_were_cut_are_refused_and_not_begun_anew(tmp_path: Path):
    path = tmp_path / LEDGER
    write_sealed(path, b"\n")
    path.write_bytes(b"")
    with pytest.raises(
        UserError, match=f"{path}: cut or changed .*; put the file back as it was, or move it and {FILE} away"
    ):
        read_ledger(path)


@pytest.mark.parametrize("at", ["before it is there", "before it is sealed"])
def test_whoever_is_killed_while_writing_leaves_nothing_that_is_refused(at: str, table: Path, monkeypatch):
    def killed(path: Path, content: bytes) -> None:
        if at == "before it is sealed" and path == table:
            write(path, content)
        else:
            raise KeyboardInterrupt

    write = files.write_atomically
    monkeypatch.setattr(files, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        write_sealed(table, TABLE + b"sharded,0.5\n")
    assert is_as_made(table)


def test_a_file_that_is_given_up_is_not_there(tmp_path: Path):
    def give_up() -> None:
        with whole_file(tmp_path / "file") as file:
            file.write(b"half")
            raise UserError("the other half can't be read")

    with pytest.raises(UserError, match="other half"):
        give_up()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_told_by_a_process_to_the_one_that_started_it():
    error = pickle.loads(pickle.dumps(DiskIsFull("data/images: the disk is full")))
    assert isinstance(error, DiskIsFull)
    assert str(error) == "data/images: the disk is full"


def test_one_writer_syncs_files_and_checkpoints_their_folders():
    syncing = {path.stem for path in (ROOT / "scripts").rglob("*.py") if "fsync(" in path.read_text()}
    assert syncing == {"files", "checkpoint"}


# How scripts end


@pytest.mark.parametrize("error", [UserError("config.yaml: mend it"), PermissionError(13, "Permission denied", "out")])
def test_what_the_user_can_mend_ends_a_script_with_its_text_alone(error: Exception, capsys):
    def failing() -> int:
        raise error

    assert entry_point(failing)() == 1
    assert entry_point(failing, failed=2)() == 2
    assert capsys.readouterr().err == f"{error}\n" * 2


def test_anything_else_keeps_its_traceback():
    def failing() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        entry_point(failing)()


def test_a_script_that_ends_well_keeps_its_exit_code():
    assert entry_point(lambda: 3)() == 3


def test_scripts_say_errors_in_one_way():
    """Those that tell more in a line, as which trial it was, have a way of their own."""
    said_alone = re.compile(r"except .*Error.* as error:\n +print\(error, file=sys.stderr\)")
    assert [path.name for path in (ROOT / "scripts").glob("*.py") if said_alone.search(path.read_text())] == []


# What is read is not written over


def test_what_is_read_is_not_written_over_by_whatever_name(tmp_path: Path) -> None:
    read = tmp_path / "read.csv"
    read.write_bytes(TABLE)
    (tmp_path / "link.csv").symlink_to(read)
    for out in (read, tmp_path / "." / "read.csv", tmp_path / "link.csv"):
        with pytest.raises(UserError, match="it is read"):
            refuse_output(out, [tmp_path / "nowhere.csv", read])
    refuse_output(tmp_path / "other.csv", [read])


@pytest.mark.parametrize(("place", "said"), [("nope/x.csv", "no folder"), (".", "a folder; name a file")])
def test_a_name_that_no_file_can_have_is_refused_by_that_name(tmp_path: Path, place: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        write_atomically(tmp_path / place, TABLE)
    assert str(tmp_path / place) in str(caught.value)
    assert ".partial" not in str(caught.value)


# Nobody reads on


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_script_whose_reader_has_gone_ends_in_silence(lines: int) -> None:
    """As under `| head`; few lines are written as the script ends, many before."""
    program = f"from dpscale.errors import entry_point\nentry_point(lambda: print('text\\n' * {lines}) or 0)()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT / "scripts",
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert said == ""
