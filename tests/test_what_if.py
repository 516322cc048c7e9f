"""What if: topology files are typed, and every question is answered in one table."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from measurements import fabricated

import what_if
from dpscale.errors import UserError
from dpscale.forecasting.calibration_file import Calibrated, read_calibrations, write_calibrations
from dpscale.scaling_model.calibration import calibrate
from dpscale.scaling_model.machine import Machine
from dpscale.scaling_model.prediction import Setting
from dpscale.scaling_model.what_if import answers, placements
from dpscale.typed import validated

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "workflow/topologies").glob("*.yaml"))
A_MACHINE = EXAMPLES[0].read_text()
SETTING = Setting(samples=60_000, batch=16, scaling="weak", drop_last=True)


@pytest.fixture
def calibration(tmp_path) -> Path:
    one = Calibrated(strategy="ddp", launcher="spawn", seed=0, setting=SETTING, measurements=fabricated(), estimates={})
    write_calibrations(tmp_path / "calibration.json", [one], {"experiment": "quick"})
    return tmp_path / "calibration.json"


def ask(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/what_if.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_calibration_is_read_as_it_was_written(calibration):
    (one,) = read_calibrations(calibration)
    assert (one.setting, one.measurements) == (SETTING, fabricated())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_machine(path):
    assert validated(Machine, yaml.safe_load(path.read_text()), path.name).network.launch_s >= 0


def test_every_machine_and_setting_is_answered_up_to_all_its_devices(calibration, tmp_path):
    done = ask(calibration, *EXAMPLES, "--batch", 16, 64, "--bytes-factor", 1, 0.5, "--csv", tmp_path / "all.csv")
    assert done.returncode == 0, done.stderr
    assert "knee, devices" in done.stdout
    found = pd.read_csv(tmp_path / "all.csv")
    assert set(found.topology) == {path.stem for path in EXAMPLES}
    assert set(found.batch) == {16, 64}
    assert found.devices.max() <= 16_384
    assert ((found.epoch_time_s_low <= found.epoch_time_s) & (found.epoch_time_s <= found.epoch_time_s_high)).all()
    assert (found.scaling_efficiency <= 1 + 1e-9).all()
    assert found[found.devices == 1].scaling_efficiency.tolist() == pytest.approx([1.0] * 16)


def test_a_faster_network_is_never_slower(calibration, tmp_path):
    slow = yaml.safe_load(EXAMPLES[0].read_text())
    fast = {
        **slow,
        "inter": {"latency_us": 1, "bandwidth_GB_per_s": 1000},
        "intra": {"latency_us": 1, "bandwidth_GB_per_s": 1000},
    }
    for name, machine in (("slow", slow), ("fast", fast)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(machine))
    done = ask(calibration, tmp_path / "slow.yaml", tmp_path / "fast.yaml", "--csv", tmp_path / "all.csv")
    assert done.returncode == 0, done.stderr
    found = pd.read_csv(tmp_path / "all.csv").pivot_table(index="devices", columns="topology", values="epoch_time_s")
    assert (found.fast <= found.slow).all()


def test_a_misspelt_key_of_a_topology_is_refused_with_the_right_one(calibration, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(EXAMPLES[0].read_text().replace("efficiency:", "eficiency:"))
    done = ask(calibration, path)
    assert done.returncode == 1
    assert "unknown key 'eficiency': did you mean 'efficiency'?" in done.stderr
    assert "mine.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_is_no_calibration_is_refused(tmp_path):
    path = tmp_path / "calibration.json"
    path.write_text("{}")
    with pytest.raises(UserError, match="no calibration"):
        read_calibrations(path)


def test_what_is_read_is_not_written_over(calibration, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(A_MACHINE)
    before = {path: path.read_bytes() for path in (calibration, mine)}
    for out in (calibration, mine):
        done = ask(calibration, mine, "--csv", out)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{out}: it is read" in done.stderr
    assert {path: path.read_bytes() for path in before} == before


# What can't be answered is said


@pytest.mark.parametrize("lacking", ["contention", "stretch"])
def test_what_was_not_measured_of_the_workload_is_not_answered(lacking):
    calibration = calibrate(replace(fabricated(), **{lacking: []}), draws=2)
    network = what_if.read_machine(EXAMPLES[0]).network
    with pytest.raises(UserError, match="set explain: true"):
        answers(calibration, network, SETTING, placements(16, 8))
    assert len(answers(calibration, network, SETTING, placements(1, 8))) == 1


def test_a_strong_batch_is_answered_where_it_comes_out_whole():
    calibration = calibrate(fabricated(), draws=2)
    network = what_if.read_machine(EXAMPLES[0]).network
    setting = Setting(samples=60_000, batch=1000, scaling="strong", accumulation_steps=5)
    found = answers(calibration, network, setting, placements(400, 10))
    assert [one.devices for one in found] == [1, 2, 4, 8, 10, 20, 40]
    assert "such as 3" in what_if.left_out(setting, placements(400, 10))
    assert what_if.left_out(SETTING, placements(400, 10)) == ""


def test_no_knee_has_its_reason(calibration):
    done = ask(calibration, EXAMPLES[0], "--batch", 16, "--accumulation-steps", 32)
    assert done.returncode == 0, done.stderr
    assert "none" in done.stdout
    assert "16 samples of each device in 32 passes do not come out whole" in done.stdout


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--compression-s-per-byte=-1e-7", "-1e-7 is no number from 0 on"),
        ("--compression-s-per-byte=nan", "nan is no number from 0 on"),
        ("--bucket-cap-MiB=inf", "inf is no number above 0"),
        ("--bucket-cap-MiB=nan", "nan is no number above 0"),
        ("--bytes-factor=nan", "nan is not above 0"),
        ("--samples=10000000000000000", "is not between 1 and"),
    ],
)
def test_a_number_that_can_not_be_meant_is_refused(option, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["what_if.py", "calibration.json", "a.yaml", option])
    with pytest.raises(SystemExit):
        what_if.parse()
    assert said in capsys.readouterr().err


def test_buckets_too_small_to_be_simulated_are_refused_with_the_least_size(calibration):
    (one,) = read_calibrations(calibration)
    with pytest.raises(UserError, match=r"--bucket-cap-MiB 1e-09: more than 1000 .* give at least 0.017"):
        what_if.refuse_many_buckets(one, [25, 1e-9])
    what_if.refuse_many_buckets(one, [25, 0.02])


def test_two_machines_of_one_name_are_refused(tmp_path):
    paths = [tmp_path / folder / "mine.yaml" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(A_MACHINE)
    with pytest.raises(UserError, match="two machines of one name") as caught:
        what_if.read_machines(paths)
    assert all(str(path) in str(caught.value) for path in paths)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe n\x00", "mine.yaml: "),
        (b"- nodes: 4", "top level: keys with values are expected here, such as nodes: 4"),
        (b"text", "top level: keys with values are expected here"),
        (A_MACHINE.encode() + b"\nnodes: 7\n", "'nodes' is in line"),
        (b"", "nodes: this key is required"),
    ],
)
def test_a_file_that_is_no_machine_is_refused(tmp_path, content, said):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        what_if.read_machine(path)
    assert said in str(caught.value)
    assert "mine.yaml" in str(caught.value)
