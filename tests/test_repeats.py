"""How often cells are measured, in which order, and which are measured again: placebo, shuffled repeats, `make more`."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import a_config, a_trial, repeats

import more as more_script
from dpscale.config import load_config
from dpscale.errors import ConfigError
from dpscale.planning.order import measuring_order
from dpscale.planning.plan import plan_trials
from dpscale.tables import make_tables
from dpscale.trial import PLACEBO, Trial

SCRIPTS = Path(__file__).parents[1] / "scripts"


def planned(**changes: Any) -> list[Trial]:
    return plan_trials(load_config(a_config(**changes)))["quick"]


# The placebo


def test_a_placebo_is_the_first_of_the_largest_cells_again_under_another_name():
    trials = planned(strategies={"single": None, "ddp": None, "zero": None}, placebo=True, repeats=2)
    placebos = [trial for trial in trials if trial.strategy == PLACEBO]
    twins = [trial for trial in trials if trial.cell == "ddp/spawn/1x2"]
    assert [replace(trial, strategy="ddp") for trial in placebos] == twins
    assert len(twins) == 2


def test_without_asking_there_is_no_placebo():
    assert PLACEBO not in {trial.strategy for trial in planned()}


def test_no_variant_may_take_the_placebos_name():
    with pytest.raises(ConfigError, match=r"strategies.placebo: the name of the cell .* choose another"):
        planned(strategies={"placebo": {"base": "ddp"}})


# More repeats of some cells


def more(cells: dict[str, int], experiment: str = "quick"):
    return plan_trials(load_config({**a_config(repeats=2), "more_repeats": {experiment: cells}}))["quick"]


def test_more_repeats_are_of_their_cell_alone_and_change_no_other_trial():
    added = {trial.id for trial in more({"ddp/spawn/1x2": 4})} - {trial.id for trial in more({})}
    assert added == {"quick/ddp/spawn/1x2/r2", "quick/ddp/spawn/1x2/r3"}
    assert [trial for trial in more({"ddp/spawn/1x2": 4}) if trial.id not in added] == more({})


def test_fewer_than_the_experiments_repeats_change_nothing():
    assert more({"ddp/spawn/1x2": 1}) == more({})


@pytest.mark.parametrize(
    ("experiment", "cell"), [("quick", "ddp/spawn/1x8"), ("other", "ddp/spawn/1x2"), ("quick", "placebo/spawn/1x2")]
)
def test_more_repeats_of_what_is_not_planned_here_count_for_nothing(experiment, cell):
    """They may be of a preset that goes over the configuration at other times."""
    assert more({cell: 9}, experiment) == more({})


# The order of measuring


def test_trials_run_repeat_by_repeat():
    assert [trial.repeat for trial in measuring_order(planned(repeats=3))] == sorted(
        t.repeat for t in planned(repeats=3)
    )


def test_within_a_repeat_cells_run_in_an_order_of_its_own_drawn_from_the_seed():
    def orders(seed: int) -> list[list[str]]:
        trials = planned(strategies={"single": None, "ddp": None, "zero": None}, seed=seed, repeats=6)
        ordered = measuring_order(trials)
        assert sorted(trial.id for trial in ordered) == sorted(trial.id for trial in trials)
        return [[trial.cell for trial in those] for _, those in groupby(ordered, lambda trial: trial.repeat)]

    assert orders(0) == orders(0)
    assert orders(0) != orders(100)
    assert len({tuple(order) for order in orders(0)}) > 3


def test_every_cell_comes_first_sometimes():
    ordered = measuring_order(planned(repeats=200))
    cells = len({trial.cell for trial in ordered})
    first = Counter(trial.cell for trial in ordered[::cells])
    assert len(first) == cells
    assert max(first.values()) < 2 * min(first.values())


def test_another_experiment_leaves_the_order_of_this_one_alone():
    other = plan_trials(load_config({"experiments": {"other": a_config()["experiments"]["quick"]}}))["other"]
    both = [trial for trial in measuring_order([*other, *planned()]) if trial.experiment == "quick"]
    assert both == measuring_order(planned())


# make more


@pytest.mark.parametrize(
    ("width_percent", "launches", "wanted"),
    [
        (50.0, 3, 6),  # no interval yet
        (6.0, 6, 9),  # 6 x 1.2 ^ 2 = 8.6
        (5.1, 20, 21),
        (40.0, 6, 12),  # 6 x 8 ^ 2, but twice as many at most at a time
        (10.0, 20, 30),  # the limit
    ],
)
def test_a_cell_is_repeated_as_often_as_its_interval_is_expected_to_take(width_percent, launches, wanted):
    assert more_script.repeats_wanted(width_percent, launches, percent=5.0, most=30) == wanted


WIDE, NARROW = [2.0, 2.2, 2.4, 2.6, 2.8, 3.0], [2.0, 2.001, 2.002, 2.003, 2.004, 2.005]


class Measured:
    """A folder with a configuration of two cells and their tables."""

    def __init__(self, root: Path, ddp_s: list[float], single_s: list[float]) -> None:
        self.root = root
        data = a_config(launchers=["spawn"], topologies=["1x1"], repeats=len(ddp_s))
        (root / "config.yaml").write_text(yaml.safe_dump(data))
        folder = root / "results/quick/tables"
        folder.mkdir(parents=True)
        cells = {
            strategy: a_trial(experiment="quick", strategy=strategy, devices_per_node=1)
            for strategy in ("ddp", "single")
        }
        rows = [*repeats(cells["single"], single_s), *repeats(cells["ddp"], ddp_s)]
        for name, table in make_tables(rows).items():
            table.to_csv(folder / f"{name}.csv", index=False)

    def more(
        self, *arguments: str, percent: float = 5.0, most: int = 30, out: str = "more.yaml"
    ) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPTS / "more.py"), "config.yaml", *arguments]
        limits = [f"--percent={percent}", f"--most={most}", f"--out={out}"]
        return subprocess.run([*command, *limits], cwd=self.root, capture_output=True, text=True, check=False)

    @property
    def raised(self) -> dict[str, int]:
        return yaml.safe_load((self.root / "more.yaml").read_text())["more_repeats"]["quick"]


def test_only_the_cell_whose_interval_is_too_wide_is_repeated(tmp_path):
    experiment = Measured(tmp_path, WIDE, NARROW)
    done = experiment.more()
    assert (done.returncode, done.stdout) == (0, "quick\n")
    assert experiment.raised == {"ddp/spawn/1x1": 12}
    assert "ddp/spawn/1x1" in done.stderr
    assert "single" not in done.stderr


def test_what_was_raised_before_is_kept(tmp_path):
    experiment = Measured(tmp_path, WIDE, NARROW)
    earlier = {"quick": {"single/spawn/1x1": 8}, "of_a_preset": {"ddp/spawn/1x2": 9}}
    (tmp_path / "more.yaml").write_text(yaml.safe_dump({"more_repeats": earlier}))
    experiment.more()
    assert experiment.raised == {"single/spawn/1x1": 8, "ddp/spawn/1x1": 12}
    assert "of_a_preset" in (tmp_path / "more.yaml").read_text()


def test_what_was_raised_and_not_measured_is_named_again_until_it_is(tmp_path):
    experiment = Measured(tmp_path, WIDE, NARROW)
    experiment.more()
    written = (tmp_path / "more.yaml").read_text()
    again = experiment.more()  # the run between them was interrupted: the tables are the old ones
    assert (again.returncode, again.stdout) == (0, "quick\n")
    assert (tmp_path / "more.yaml").read_text() == written


def test_launches_that_are_planned_and_missing_are_named_at_the_limit_too(tmp_path):
    experiment = Measured(tmp_path, WIDE, NARROW)
    experiment.more(most=8)
    assert experiment.raised == {"ddp/spawn/1x1": 8}
    assert experiment.more(most=8).stdout == "quick\n"


def test_what_the_configuration_plans_and_no_run_measured_is_named_but_not_written(tmp_path):
    experiment = Measured(tmp_path, WIDE, NARROW)
    data = yaml.safe_load((tmp_path / "config.yaml").read_text())
    data["experiments"]["quick"]["repeats"] = 30
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(data))
    assert experiment.more().stdout == "quick\n"
    assert not (tmp_path / "more.yaml").exists()


def test_where_every_interval_is_narrow_nothing_is_raised(tmp_path):
    done = Measured(tmp_path, NARROW, NARROW).more()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no interval is wider than 5 %\n")
    assert not (tmp_path / "more.yaml").exists()


def test_cells_that_have_no_interval_yet_get_one(tmp_path):
    experiment = Measured(tmp_path, NARROW[:3], NARROW[:3])
    experiment.more()
    assert experiment.raised == {"single/spawn/1x1": 6, "ddp/spawn/1x1": 6}


def test_at_the_limit_nothing_is_raised_and_the_width_is_told(tmp_path):
    done = Measured(tmp_path, WIDE, NARROW).more(most=6)
    assert (done.returncode, done.stdout) == (0, "")
    assert "ddp/spawn/1x1" in done.stderr
    assert not (tmp_path / "more.yaml").exists()


def test_without_tables_it_says_what_to_run_first(tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(a_config()))
    command = [sys.executable, str(SCRIPTS / "more.py"), "config.yaml", "--percent=5", "--most=9", "--out=more.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "results/quick/tables: no summary.csv; run `make run` first" in done.stderr


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"percent": -5}, "--percent=-5: give a positive number (make MORE=...)\n"),
        ({"most": 0}, "--most=0: give a number from 1 to 1000 (make MOST=...)\n"),
        ({"most": 2000}, "--most=2000: give a number from 1 to 1000 (make MOST=...)\n"),
    ],
)
def test_limits_that_can_not_be_meant_are_refused(tmp_path, limits, said):
    done = Measured(tmp_path, NARROW, NARROW).more(**limits)
    assert (done.returncode, done.stderr) == (1, said)


def test_a_configuration_is_not_written_over(tmp_path):
    experiment = Measured(tmp_path, WIDE, NARROW)
    before = (tmp_path / "config.yaml").read_bytes()
    done = experiment.more(out="config.yaml")
    assert done.returncode == 1
    assert "config.yaml: it is read" in done.stderr
    assert (tmp_path / "config.yaml").read_bytes() == before
