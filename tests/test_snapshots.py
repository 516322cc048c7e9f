"""Snapshots: whole, small, checked, never overwritten, and never outside their folder; and what is compared with them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import MACHINE, a_trial, measured, step_columns
from pipeline import ROOT, Checkout, small_config

import compare
import snapshot
from dpscale.errors import UserError
from dpscale.files import sha256_of
from dpscale.record import RECORD, STEPS, write_samples, write_steps
from dpscale.snapshots import CHECKSUMS, find, keep, kept, read
from dpscale.tables import make_tables
from trace_figure import records_of

DDP = a_trial(experiment="small")
SEVEN = [2.0 + number / 100 for number in range(7)]


def results_of(folder: Path, epochs_s: list[float] = SEVEN, **facts: str) -> Path:
    """A results folder as a run leaves it: launches of one cell, their records, and the tables of them."""
    found, digests = [], {}
    for repeat, epoch_s in enumerate(epochs_s):
        trial = replace(DDP, repeat=repeat, seed=repeat)
        path = folder / trial.folder
        path.mkdir(parents=True)
        _, record, steps = measured(trial, epoch_s, environment={**MACHINE, **facts})
        record = replace(
            record,
            steps_sha256=write_steps(path / STEPS, step_columns(record)),
            monitor_sha256=write_samples(path / "monitor.parquet", []),
        )
        record.write(path)
        found.append((trial, record, steps))
        digests[trial.id] = sha256_of(path / RECORD)
    tables = folder / "small/tables"
    tables.mkdir()
    for name, table in make_tables(found, digests=digests).items():
        table.to_csv(tables / f"{name}.csv", index=False)
    return folder


def rewrite(results: Path, data: dict[str, Any]) -> None:
    """Another record of the first launch, and the table of records as it is made of that one."""
    record, table = results / DDP.folder / RECORD, results / "small/tables/records.csv"
    old = sha256_of(record)
    record.write_text(json.dumps(data))
    table.write_text(table.read_text().replace(old, sha256_of(record)))


@pytest.fixture
def results(tmp_path):
    return results_of(tmp_path / "results")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("results_dir: results\n")
    return path


@pytest.fixture
def snapshots(tmp_path):
    return tmp_path / "snapshots"


def test_a_snapshot_holds_records_tables_and_configuration_but_no_times_of_single_steps(results, config, snapshots):
    folder = keep("before", results, [config], snapshots)
    names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert {CHECKSUMS, "1-config.yaml", RECORD, "summary.csv", "timings.csv", "records.csv"} <= names
    assert not names & {STEPS, "monitor.parquet", "losses.csv", "timeline.csv"}
    assert len(list(folder.rglob(RECORD))) == 7


def test_its_checksums_are_those_that_sha256sum_checks(results, config, snapshots):
    folder = keep("before", results, [config], snapshots)
    subprocess.run(["sha256sum", "--check", "--quiet", CHECKSUMS], cwd=folder, check=True)
    listed = {line.partition("  ")[2] for line in (folder / CHECKSUMS).read_text().splitlines()}
    assert listed == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {CHECKSUMS}


def test_files_of_the_configuration_with_one_name_are_both_kept_in_their_order(results, config, snapshots, tmp_path):
    reduced = tmp_path / "reduced/config.yaml"
    reduced.parent.mkdir()
    reduced.write_text("{}")
    folder = keep("before", results, [config, reduced], snapshots)
    assert sorted(path.name for path in (folder / "config").iterdir()) == ["1-config.yaml", "2-config.yaml"]


def test_no_snapshot_is_overwritten(results, config, snapshots):
    folder = keep("before", results, [config], snapshots)
    before = (folder / CHECKSUMS).read_text()
    with pytest.raises(UserError, match="before exists, and no snapshot is overwritten; choose another name"):
        keep("before", results, [config], snapshots)
    assert (folder / CHECKSUMS).read_text() == before


@pytest.mark.parametrize("name", ["../before", "a/b", "/tmp/before", "..", ".", ".hidden", "", "a b", "a\nb", "-x"])
def test_a_name_leads_to_no_other_folder(name, results, config, snapshots, tmp_path):
    there = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match="is no name of a snapshot"):
        keep(name, results, [config], snapshots)
    assert sorted(tmp_path.iterdir()) == there


def test_nothing_is_kept_where_nothing_is_measured(config, snapshots, tmp_path):
    with pytest.raises(UserError, match="no experiment with measured trials"):
        keep("before", tmp_path / "empty", [config], snapshots)
    assert not snapshots.exists()


def test_records_that_are_newer_than_the_tables_are_refused(results, config, snapshots):
    record = results / DDP.folder / RECORD
    record.write_text(record.read_text() + "\n")
    with pytest.raises(UserError, match="newer than the tables; run snakemake first"):
        keep("before", results, [config], snapshots)
    assert not snapshots.exists()


def test_a_configuration_that_is_not_there_leaves_no_snapshot(results, snapshots, tmp_path):
    with pytest.raises(OSError, match=r"gone\.yaml"):
        keep("before", results, [tmp_path / "gone.yaml"], snapshots)
    assert kept(snapshots) == []
    assert list(snapshots.iterdir()) == []


def test_emptied_checksums_hold_nothing_and_are_refused(results, config, snapshots):
    (keep("before", results, [config], snapshots) / CHECKSUMS).write_text("")
    with pytest.raises(UserError, match="SHA256SUMS: empty"):
        find("before", snapshots)


def test_an_emptied_table_without_a_seal_is_said_in_one_line(results):
    (results / "small/tables/timings.csv").write_text("")
    with pytest.raises(UserError, match=r"timings\.csv: not a whole table"):
        read(results)


def test_snapshots_are_listed_with_what_they_hold(results, config, snapshots):
    assert "no snapshot yet" in snapshot.listing(snapshots)
    keep("before", results, [config], snapshots)
    (one,) = kept(snapshots)
    assert (one.name, one.experiments, one.launches) == ("before", ["small"], 7)
    assert one.measured_until == "2026-01-01T00:01:00+00:00"
    assert "before" in snapshot.listing(snapshots)


def test_a_snapshot_is_read_as_the_results_that_it_was_made_of(results, config, snapshots):
    keep("before", results, [config], snapshots)
    one, two = read(find("before", snapshots)), read(results)
    assert one.timings.equals(two.timings)
    assert (one.settings, one.environments) == (two.settings, two.environments)
    ((key, settings),) = one.settings.items()
    assert key == ("small", "ddp", "spawn", 1, 2)
    assert not {"repeat", "seed", "timeout_s"} & settings.keys()
    assert settings["model"] == "convnet"


def test_the_code_of_a_trial_is_a_fact_of_its_environment(results):
    record = results / DDP.folder / RECORD
    data = json.loads(record.read_text())
    rewrite(results, data | {"launch": data["launch"] | {"code": "abc"}})
    codes = [facts["code"] for facts in read(results).environments if "code" in facts]
    assert {"ddp of convnet by spawn": "abc"} in codes


def test_a_record_is_read_whatever_its_format(results, config, snapshots):
    """A snapshot of an older version is no less one."""
    record = results / DDP.folder / RECORD
    data = json.loads(record.read_text())
    assert "format_version" in data
    rewrite(results, data | {"format_version": 1})
    assert len([facts for facts in read(results).environments if "torch" in facts]) == 7


def test_a_record_without_an_environment_is_refused(results):
    record = results / DDP.folder / RECORD
    data = json.loads(record.read_text())
    del data["environment"]
    rewrite(results, data)
    with pytest.raises(UserError, match=r"record\.json: format \d+ has no environment"):
        read(results)


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text(path.read_text() + "\n")])
def test_results_whose_records_are_not_those_of_the_tables_are_not_compared(change, results):
    """Times are the tables', the environment is the records': they must be of the same launches."""
    change(results / DDP.folder / RECORD)
    with pytest.raises(UserError, match=r"record\.json: missing, or newer than the tables; run snakemake first"):
        read(results)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_text("x")])
def test_a_damaged_snapshot_is_refused_by_the_name_of_the_file(damage, results, config, snapshots):
    folder = keep("before", results, [config], snapshots)
    damage(folder / "results/small/tables/timings.csv")
    with pytest.raises(UserError, match=r"small/tables/timings\.csv: missing, or not what it was"):
        find("before", snapshots)


def test_an_unknown_snapshot_names_the_nearest(results, config, snapshots):
    keep("before", results, [config], snapshots)
    with pytest.raises(UserError, match="did you mean 'before'"):
        find("befor", snapshots)


# compare.py


def run_compare(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/compare.py"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_slow_down_against_a_snapshot_ends_with_its_exit_code_and_leaves_tables_and_figure(
    results, config, snapshots, tmp_path
):
    keep("before", results, [config], snapshots)
    results_of(tmp_path / "now", [2 * epoch_s for epoch_s in SEVEN], torch="2.15.0")
    done = run_compare("before", "./now", "--out=compared", cwd=tmp_path)
    assert done.returncode == compare.SLOWDOWN, done.stderr
    assert "SLOWER by 50.0 %: small/ddp/spawn/1x2" in done.stdout
    assert done.stdout.index("torch") < done.stdout.index("small/ddp/spawn/1x2")
    made = {path.name for path in (tmp_path / "compared").iterdir()}
    assert made == {"changes.csv", "environment_changes.csv", "changes.svg", "changes.png", "changes.pdf"}
    table = tmp_path / "compared/changes.csv"
    for kind in ("svg", "png", "pdf"):
        assert records_of(table.with_suffix(f".{kind}")) == [(table, sha256_of(table))]
    table.write_text("edited")
    with pytest.raises(UserError, match=r"changes\.csv: missing, or not the one that the figure was made from"):
        records_of(table.with_suffix(".svg"))


def test_a_snapshot_of_the_present_results_is_no_second_measurement(results, config, snapshots, tmp_path):
    keep("before", results, [config], snapshots)
    done = run_compare("before", "./results", cwd=tmp_path)
    assert done.returncode == compare.CANNOT_COMPARE, done.stderr
    assert done.stdout.rstrip().endswith("the very launches of before; measure again, then compare")


def test_what_can_not_be_compared_is_an_error_with_its_own_exit_code(results, config, snapshots, tmp_path):
    done = run_compare("before", "./results", cwd=tmp_path)
    assert done.returncode == compare.CANNOT_COMPARE
    assert done.stderr.startswith("'before': no snapshot in snapshots")
    assert "Traceback" not in done.stderr


def test_the_exit_codes_stand_in_its_help(tmp_path):
    text = run_compare("--help", cwd=tmp_path).stdout
    for code in (compare.NO_SLOWDOWN, compare.CANNOT_COMPARE, compare.SLOWDOWN):
        assert f"\n  {code}  " in text


# make and Snakemake


def test_two_snapshots_are_kept_by_make_and_compared_by_snakemake(tmp_path):
    copy = Checkout.fresh(tmp_path / "dpscale", small_config())
    for name, slower_by_s in {"one": 0.0, "two": 0.001}.items():
        shutil.rmtree(copy.results(), ignore_errors=True)
        results_of(copy.results(), [epoch_s + slower_by_s for epoch_s in SEVEN])
        assert make(copy, "snapshot", f"NAME={name}") == f"snapshots/{name}\n"
    assert {"one", "two"} <= set(make(copy, "snapshot").split())
    copy.run("results/comparisons/one/two/changes.svg")
    folder = copy.results("comparisons/one/two")
    assert "No cell is shown to be slower." in (folder / "compare.log").read_text()
    assert {"changes.csv", "environment_changes.csv", "changes.pdf"} <= {path.name for path in folder.iterdir()}
    assert "small/ddp/spawn/1x2" in make(copy, "compare", "BEFORE=one")


def make(copy: Checkout, *arguments: str) -> str:
    command = ["make", *arguments, f"BIN={Path(sys.executable).parent}", "-o", ".venv/run-ready"]
    done = subprocess.run(command, cwd=copy.root, env=copy.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
