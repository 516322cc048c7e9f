"""What the terminal says after a run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

from factories import LAUNCH, a_single_trial, a_trial, measured, repeats

import show
from dpscale.code import SCRIPTS
from dpscale.tables import make_tables
from dpscale.trial import PLACEBO

SINGLE, DDP = a_single_trial(), a_trial()


def shown(tmp_path, monkeypatch, capsys, rows) -> str:
    make_tables(rows)["summary"].to_csv(tmp_path / "summary.csv", index=False)
    monkeypatch.setattr("sys.argv", ["show.py", str(tmp_path / "summary.csv")])
    show.main()
    return capsys.readouterr().out


def test_a_warning_that_cells_share_is_said_once_with_their_names(tmp_path, monkeypatch, capsys):
    on_shared_nodes = {"launch": {**LAUNCH, "slurm": {"shared": True}}}
    text = shown(tmp_path, monkeypatch, capsys, [measured(trial, **on_shared_nodes) for trial in (SINGLE, DDP)])
    assert text.count("shared nodes") == 1
    assert "single/spawn/1x1, ddp/spawn/1x2: shared nodes" in text


def test_what_is_in_brackets_is_said_once_and_of_which_cells_it_is(tmp_path, monkeypatch, capsys):
    rows = [*repeats(SINGLE, [2.0, 2.5, 3.0]), *repeats(DDP, [2.0 + place / 10 for place in range(6)])]
    text = shown(tmp_path, monkeypatch, capsys, rows)
    assert "\nMedians; in brackets: range of 3 where n is 3 and 95 % interval where n is 6.\n" in text
    assert text.count("in brackets") == 1


def test_the_noise_floor_is_said(tmp_path, monkeypatch, capsys):
    rows = [*repeats(DDP, [2.0, 2.0]), *repeats(replace(DDP, strategy=PLACEBO), [2.0, 2.5])]
    assert "noise floor, from placebo/spawn/1x2: 25.0 %" in shown(tmp_path, monkeypatch, capsys, rows)


def test_what_was_not_measured_is_said_with_its_reason(tmp_path, monkeypatch, capsys):
    text = shown(tmp_path, monkeypatch, capsys, [measured(SINGLE), (DDP, None, None)])
    assert "ddp/spawn/1x2: missing: not measured yet" in text


def test_a_reader_that_goes_away_ends_it_without_a_word(tmp_path):
    make_tables([measured(SINGLE)])["summary"].to_csv(tmp_path / "summary.csv", index=False)
    command = [sys.executable, SCRIPTS / "show.py", *[tmp_path / "summary.csv"] * 2000]  # more than a pipe holds
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
