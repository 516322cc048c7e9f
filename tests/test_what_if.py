"""What if: topology files are typed, and every question is answered in one table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml
from measurements import fabricated

from dpscale.errors import UserError
from dpscale.forecasting.calibration_file import Calibrated, read_calibrations, write_calibrations
from dpscale.scaling_model.machine import Machine
from dpscale.scaling_model.prediction import Setting
from dpscale.typed import validated

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "workflow/topologies").glob("*.yaml"))
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
