"""What `make run` does around Snakemake: it refuses what Snakemake would not name, and leaves no half of a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pipeline import ROOT

SNAKEMAKE = """\
#!/bin/sh
for argument; do last_but_one=$last; last=$argument; [ "$last_but_one" = --report ] && report=$argument; done
echo "snakemake $*"
[ -z "$report" ] && exit 0
echo "<html>half" > "$report"
{end}
"""
PYTHON = '#!/bin/sh\ncase "$1" in *read_configs.py) exec "{python}" "$@";; esac\n'


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "report.html").write_text("<html>of the run before</html>")
    return folder


def make_run(results: Path, end: str = "", arguments: str = "", *variables: str) -> subprocess.CompletedProcess[str]:
    """With a Snakemake that writes half a report and then ends as it is told to, by a shell command."""
    programs = results.parent / "bin"
    programs.mkdir()
    for name, text in (("snakemake", SNAKEMAKE), ("python", PYTHON)):
        (programs / name).write_text(text.replace("{end}", end).replace("{python}", sys.executable))
        (programs / name).chmod(0o755)
    command = ["make", "run", f"BIN={programs}", "-o", ".venv/run-ready", f"RESULTS={results}", f"ARGS={arguments}"]
    command += variables
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, start_new_session=True)


def test_a_report_replaces_the_one_before_when_it_is_whole(results: Path):
    done = make_run(results, 'echo "</html>" >> "$report"', "--config partial=true")
    assert done.returncode == 0, done.stderr
    assert (results / "report.html").read_text() == "<html>half\n</html>\n"
    assert [path.name for path in results.iterdir()] == ["report.html"]


@pytest.mark.parametrize("killed", ["$$", "$PPID $$", "0"], ids=["Snakemake", "its shell too", "everything"])
def test_a_report_that_snakemake_was_killed_at_is_not_there_and_the_one_before_is(killed: str, results: Path):
    assert make_run(results, f"kill -9 {killed}").returncode != 0
    assert (results / "report.html").read_text() == "<html>of the run before</html>"


def test_a_report_that_failed_leaves_nothing(results: Path):
    assert make_run(results, "exit 1").returncode != 0
    assert [path.name for path in results.iterdir()] == ["report.html"]


def test_a_configfile_that_is_no_yaml_is_refused_by_name_line_and_column(results: Path, tmp_path: Path):
    preset = tmp_path / "my preset.yaml"
    preset.write_text("experiments:\n  quick: [\n    epochs: 3\n")
    done = make_run(results, arguments=f"--configfile '{preset}' --dry-run")
    assert done.returncode != 0
    assert f"{preset}: line 4, column 1: no YAML: did not find expected ',' or ']'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_preset_goes_over_the_configuration_of_all_that_is_made(results: Path, tmp_path: Path):
    preset = tmp_path / "preset.yaml"
    preset.write_text("partial: true\n")
    done = make_run(results, "exit 0", "tables --config partial=true", f"PRESET={preset}")
    assert done.returncode == 0, done.stderr
    started = [line for line in done.stdout.splitlines() if line.startswith("snakemake ")]
    assert len(started) == 2  # to measure, and the report
    assert all(line.endswith(f" tables --config partial=true --configfile {preset}") for line in started)


def test_a_preset_that_is_no_yaml_is_refused_as_a_configfile_is(results: Path, tmp_path: Path):
    preset = tmp_path / "preset.yaml"
    preset.write_text("experiments: [\n")
    done = make_run(results, "", "", f"PRESET={preset}")
    assert done.returncode != 0
    assert f"{preset}: line 2, column 1: no YAML" in done.stderr
