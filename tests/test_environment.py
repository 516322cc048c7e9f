"""What a record says of its machine, and how it, and whatever is made from it, leads back to how it was measured."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from factories import a_single_trial
from factories import measured as factory_measured
from launching import SCRIPTS, TESTS, launch_environment, measured, small_trial

from dpscale.code import digest_of
from dpscale.environment import CLASS_FACTS, describe_machine, facts_of_gpus
from dpscale.figures import FORMATS
from dpscale.files import sha256_of
from dpscale.launching import slurm
from dpscale.monitoring.hardware import container, governor, gpu_topology, max_clock_MHz, numa_nodes
from dpscale.record import RECORD, Record
from dpscale.tables import make_tables
from plot import main as plot
from trace_figure import records_of

# The machine


def test_every_fact_of_the_class_of_a_machine_is_described():
    described = {*describe_machine("cpu"), "code_digest"}  # which launch.py adds
    assert set(CLASS_FACTS) <= described


def test_usable_cpus_are_those_that_any_rank_may_run_on():
    assert describe_machine("cpu", cpus=[0])["usable_cpus"] == 1


def test_no_secret_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    described = describe_machine("cpu")
    assert described["settings"]["NCCL_DEBUG"] == "WARN"
    assert "hunter2" not in str(described)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_clocks_and_governors_are_the_kernels(tmp_path: Path):
    for cpu, (name, clock_kHz) in enumerate([("performance", 3_500_000), ("powersave", 3_700_000)]):
        put(tmp_path / f"cpu{cpu}/cpufreq/scaling_governor", name)
        put(tmp_path / f"cpu{cpu}/cpufreq/cpuinfo_max_freq", str(clock_kHz))
    assert governor(tmp_path) == "performance+powersave"
    assert max_clock_MHz(tmp_path) == 3700


def test_numa_nodes_have_their_cpus(tmp_path: Path):
    for node, cpus in enumerate(["0-3", "4-7"]):
        put(tmp_path / f"node{node}/cpulist", cpus)
    assert numa_nodes(tmp_path) == {"node0": "0-3", "node1": "4-7"}


def test_what_the_kernel_does_not_say_is_absent(tmp_path: Path):
    assert (governor(tmp_path), max_clock_MHz(tmp_path), numa_nodes(tmp_path)) == (None, None, None)


def test_a_container_is_named_with_its_image(tmp_path: Path):
    assert container({"APPTAINER_CONTAINER": "/images/dpscale.sif"}, tmp_path) == "apptainer dpscale.sif"
    assert container({}, tmp_path) is None
    put(tmp_path / ".dockerenv", "")
    assert container({}, tmp_path) == "docker"


def test_the_topology_of_gpus_is_that_of_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    put(tmp_path / "nvidia-smi", '#!/bin/sh\n[ "$*" = "topo -m" ] && echo "GPU0 X NV18"')
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert gpu_topology() == "GPU0 X NV18\n"
    monkeypatch.setenv("PATH", "/nowhere")
    assert gpu_topology() is None


def test_gpus_are_described_by_nvml_and_what_differs_stands_side_by_side(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(TESTS / "nvml")
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    facts = facts_of_gpus(["GPU-1", "GPU-2"])
    assert (facts["device_ecc"], facts["device_power_limit_w"], facts["device_max_clock_MHz"]) == (1, 700.0, 1980)
    assert [card["uuid"] for card in facts["gpus"]] == ["GPU-1", "GPU-2"]
    assert facts["driver"] == "580.65"
    monkeypatch.setattr("pynvml.nvmlDeviceGetEccMode", lambda index: (index % 2, 0))
    assert facts_of_gpus(["GPU-1", "GPU-2"])["device_ecc"] == "0/1"


# The command that measures a trial again


def test_the_command_of_a_record_measures_its_trial_again_from_anywhere(data: Path, tmp_path: Path):
    secret = {slurm.SETTINGS: '{"gres": "gpu:a100", "prelude": "export TOKEN=hunter2"}'}
    folder = tmp_path / "it's here"
    trial = small_trial("single", 1, evaluate=False)
    first = measured(trial, data, folder, **secret).record
    command = first.launch["rerun"]
    assert "hunter2" not in command
    assert str(SCRIPTS / "launch.py") in shlex.split(command)
    (tmp_path / "elsewhere").mkdir()
    subprocess.run(
        command, shell=True, cwd=tmp_path / "elsewhere", env=launch_environment(tmp_path), timeout=120, check=True
    )
    again = Record.read(folder / "again" / RECORD)
    assert again.trial == first.trial
    assert again.environment["code_digest"] == first.environment["code_digest"] == digest_of(("train.py",))
    assert Record.read(folder / RECORD) == first  # which stays as it was


# From a figure to its records


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder with one record, its tables, and a figure of them."""
    trial = a_single_trial()
    _, record, steps = factory_measured(trial)
    path = tmp_path / trial.folder / RECORD
    path.parent.mkdir(parents=True)
    record.write(path.parent)
    tables = tmp_path / trial.experiment / "tables"
    tables.mkdir()
    made = make_tables([(trial, record, steps)], digests={trial.id: sha256_of(path)})
    for name, table in made.items():
        table.to_csv(tables / f"{name}.csv", index=False)
    figures = tmp_path / trial.experiment / "figures"
    figures.mkdir()
    files = [str(figures / f"speedup.{kind}") for kind in FORMATS]
    monkeypatch.setattr(sys, "argv", ["plot.py", "speedup", f"--tables={tables}", "--out", *files])
    plot()
    return tmp_path


@pytest.mark.parametrize("kind", FORMATS)
def test_a_figure_leads_to_the_records_that_it_was_made_from(kind: str, results: Path):
    record = results / a_single_trial().folder / RECORD
    assert records_of(results / f"quickstart/figures/speedup.{kind}") == [(record, sha256_of(record))]


def test_so_does_a_figure_for_print(results: Path):
    printed = results / "quickstart/figures/print/speedup.one_column.pdf"
    printed.parent.mkdir()
    printed.write_bytes((results / "quickstart/figures/speedup.pdf").read_bytes())
    record = results / a_single_trial().folder / RECORD
    assert records_of(printed) == [(record, sha256_of(record))]


def trace(figure: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "trace_figure.py"), str(figure)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_record_that_has_changed_since_is_told(results: Path):
    figure, record = results / "quickstart/figures/speedup.svg", results / a_single_trial().folder / RECORD
    done = trace(figure)
    assert (done.returncode, done.stdout) == (0, f"{sha256_of(record)}  {record}\n")
    record.write_text(record.read_text().replace("0.25", "0.24", 1))
    done = trace(figure)
    assert done.returncode == 1
    assert f"{record}: missing, or not the one that the figure was made from" in done.stderr


def test_tables_that_have_changed_since_are_told(results: Path):
    table = results / "quickstart/tables/records.csv"
    table.write_text(table.read_text() + "\n")
    assert f"{table}: missing, or not the one" in trace(results / "quickstart/figures/speedup.svg").stderr


def test_a_figure_that_is_not_there_is_told_with_what_to_give(tmp_path: Path):
    figure = tmp_path / "nothere.png"
    done = trace(figure)
    expected = f"{figure}: no such file; give an svg, png or pdf of results/<experiment>/figures\n"
    assert (done.returncode, done.stderr) == (1, expected)
