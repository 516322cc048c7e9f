"""What is no whole result is set aside, so that the next run measures it again; everything else is left alone."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from factories import a_record, a_trial, an_entry, an_unavailable_record, step_columns

import set_aside
from dpscale.files import seal_of, write_sealed
from dpscale.forecasting.ledger import LEDGER, append_predictions
from dpscale.record import MONITOR, RECORD, STEPS, Record, write_samples, write_steps


def write(results: Path, record: Record) -> Path:
    """A record and what lies beside it, at its place."""
    folder = results / record.trial.folder
    folder.mkdir(parents=True)
    columns = step_columns(record) if record.status == "ok" else {}
    digests = {
        "steps_sha256": write_steps(folder / STEPS, columns),
        "monitor_sha256": write_samples(folder / MONITOR, []),
    }
    replace(record, **digests).write(folder)
    return folder / RECORD


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def said(results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", ["set_aside.py", str(results)])
    assert set_aside.main() == 0
    return capsys.readouterr().out


def records_in(results: Path) -> list[str]:
    return sorted(path.name for path in results.rglob("record*.json"))


@pytest.mark.parametrize("name", [RECORD, STEPS, MONITOR])
def test_a_record_of_which_a_file_is_cut(name: str, tmp_path: Path, capsys, monkeypatch):
    whole = write(tmp_path, a_record(a_trial(repeat=0)))
    damaged = write(tmp_path, a_record(a_trial(repeat=1)))
    cut(damaged.with_name(name))
    line = said(tmp_path, capsys, monkeypatch)
    assert line.startswith(f"{damaged.with_name(name)}: ")
    assert line.endswith("; set aside as record.damaged.json, to be measured again\n")
    assert line.count("\n") == 1
    assert whole.exists()
    assert not damaged.exists()
    assert records_in(tmp_path) == ["record.damaged.json", "record.json"]
    assert said(tmp_path, capsys, monkeypatch) == ""


def test_a_record_in_another_trials_folder(tmp_path: Path, capsys, monkeypatch):
    first, second = (write(tmp_path, a_record(a_trial(repeat=repeat))) for repeat in (0, 1))
    for name in (RECORD, STEPS, MONITOR):
        second.with_name(name).write_bytes(first.with_name(name).read_bytes())
    assert said(tmp_path, capsys, monkeypatch).startswith(f"{second}: it belongs into {a_trial(repeat=0).folder}; ")
    assert first.exists()
    assert not second.exists()


def test_whole_ones_unavailable_ones_and_those_of_another_format_stay(tmp_path: Path, capsys, monkeypatch):
    write(tmp_path, a_record(a_trial(repeat=0)))
    write(tmp_path, an_unavailable_record(a_trial(repeat=1)))
    of_another = write(tmp_path, a_record(a_trial(repeat=2)))
    of_another.write_text(json.dumps(json.loads(of_another.read_text()) | {"format_version": 1}))
    assert said(tmp_path, capsys, monkeypatch) == ""
    assert records_in(tmp_path) == ["record.json"] * 3


@pytest.mark.parametrize(
    "path", ["small/collectives/spawn/1x2/collectives.json", "small/largest/ddp/spawn/1x2/largest.json"]
)
def test_times_of_collectives_and_searches_too(path: str, tmp_path: Path, capsys, monkeypatch):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert f"set aside as {file.stem}.damaged.json" in said(tmp_path, capsys, monkeypatch)
    assert not file.exists()


def test_where_there_are_no_results_yet_nothing_is_said(tmp_path: Path, capsys, monkeypatch):
    assert said(tmp_path / "results", capsys, monkeypatch) == ""


@pytest.mark.parametrize(
    "path",
    [
        "small/tables/summary.csv",
        "small/tables/prediction.csv",
        "small/tables/collectives.csv",
        "small/figures/speedup.svg",
        "small/predictions/calibration.json",
    ],
)
def test_what_is_made_of_results_and_was_cut_since(path: str, tmp_path: Path, capsys, monkeypatch):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    write_sealed(file, b"a line\nanother\n")
    assert said(tmp_path, capsys, monkeypatch) == ""
    file.write_bytes(b"a line\n")
    aside = f"{file.stem}.damaged{file.suffix}"
    line = f"{file}: cut or changed since it was made; set aside as {aside}, to be made again\n"
    assert said(tmp_path, capsys, monkeypatch) == line
    assert not file.exists()
    assert file.with_name(aside).read_bytes() == b"a line\n"
    assert said(tmp_path, capsys, monkeypatch) == ""


def test_a_table_without_a_seal_that_ends_within_a_row(tmp_path: Path, capsys, monkeypatch):
    table = tmp_path / "small/tables/timings.csv"
    table.parent.mkdir(parents=True)
    table.write_text("strategy,epoch_time_s\nddp,1.5\n")
    assert said(tmp_path, capsys, monkeypatch) == ""
    table.write_text("strategy,epoch_time_s\nddp,1.")
    line = f"{table}: not a whole table: a row of it is cut; set aside as timings.damaged.csv, to be made again\n"
    assert said(tmp_path, capsys, monkeypatch) == line
    assert said(tmp_path, capsys, monkeypatch) == ""


@pytest.mark.parametrize(
    ("sealed", "said"),
    [(True, "cut or changed since it was made"), (False, "line 1, or one before it, is not as it was written")],
)
def test_predictions_that_were_changed_end_the_run_for_nothing_makes_them_again_as_they_were(
    sealed: bool, said: str, tmp_path: Path, capsys, monkeypatch
):
    ledger = tmp_path / "small" / "predictions" / LEDGER
    append_predictions(ledger, [an_entry()])
    ledger.write_text(ledger.read_text().replace('"steps": 2.0', '"steps": 3.0'))
    if not sealed:
        seal_of(ledger).unlink()
    monkeypatch.setattr(sys, "argv", ["set_aside.py", str(tmp_path)])
    assert set_aside.main() == 1
    assert capsys.readouterr().err.startswith(f"{ledger}: {said}; put the file back")
    assert ledger.exists()
