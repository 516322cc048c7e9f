"""Every bench runs in its smallest form. What it measures then says nothing, so nothing is asserted about times."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "bench" / "run.py"


def run_bench(*arguments, out):
    command = [sys.executable, str(RUN), "--smallest", f"--out={out}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("bench", "comparisons"),
    [
        ("loop", 2),
        ("monitor", 2),
        ("strategies", 6),
        ("textbook", 2),
        ("loaders", 3),
        ("collectives", 2),
        ("dry_run", 1),
        ("startup", 1),
        ("accuracy", 2),
        ("explain", 1),
        ("larger_machines", 1),
        ("explorer", 2),
    ],
)
def test_a_bench_keeps_every_raw_figure_and_what_it_was_measured_on(bench, comparisons, tmp_path):
    done = run_bench(bench, out=tmp_path)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.json")
    assert path.name in done.stdout
    raw = json.loads(path.read_text())
    assert {"began_at", "commit", "machine", "sizes"} <= raw.keys()
    result = raw["benches"][bench]
    assert len(result["load_average_before"]) == len(result["load_average_after"]) == 3
    if result["status"] == "not run":
        pytest.skip(result["reason"])
    assert len(result["comparisons"]) == comparisons
    for comparison in result["comparisons"]:
        assert comparison["name"] in done.stdout
        assert comparison["pairs"]
        assert all(figure > 0 for pair in comparison["pairs"] for figure in pair)


def test_a_bench_that_crashes_is_reported_and_fails(tmp_path):
    command = [sys.executable, str(RUN), "dry_run", "--trials=7", f"--out={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "choose a multiple of 10" in done.stdout


def test_an_unknown_bench_is_refused(tmp_path):
    done = run_bench("lop", out=tmp_path)
    assert done.returncode == 2
    assert (
        "choose from loop, monitor, strategies, half, textbook, loaders, collectives, dry_run, startup, job_start, accuracy, explain, larger_machines, explorer"
        in done.stderr
    )
