"""An experiment under a seed's faults ends with its 12 records, as if nothing had happened; and what finds that it does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaign.checks import Ended, differences, half_written, orphans, remains
from campaign.plan import AT_ANY_TIME, BETWEEN, IN_A_STEP, IN_A_WRITE, plan_of
from campaign.run import TRIALS, Undisturbed, run_seed, undisturbed
from pipeline import Checkout

from dpscale.files import sha256_of

SEEDS = (0, 1)
RECORD = "campaign/trials/ddp/spawn/1x2/r0/record.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("undisturbed")


@pytest.fixture(scope="module")
def expected(folder: Path) -> Undisturbed:
    return undisturbed(folder)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disturbed_experiment_ends_as_an_undisturbed_one(seed: int, expected: Undisturbed, tmp_path: Path):
    outcome = run_seed(seed, tmp_path / "seed", expected)
    assert outcome.problems == []
    assert [found.struck for found in outcome.rounds if found.struck is not None]


# What a seed has in store


def test_a_seed_has_the_same_faults_every_time_and_twenty_have_them_all():
    plans = [plan_of(seed, True, 24) for seed in range(20)]
    assert plans == [plan_of(seed, True, 24) for seed in range(20)]
    assert {fault.kind for plan in plans for fault in plan.faults} == {*IN_A_STEP, *IN_A_WRITE, *AT_ANY_TIME}
    assert {damage.kind for plan in plans for damage in plan.damages} == set(BETWEEN)


def test_without_the_right_to_mount_no_disk_is_filled():
    assert not [fault for seed in range(20) for fault in plan_of(seed, False, 24).faults if "disk" in fault.kind]


# What would be found


@pytest.fixture
def checkout(expected: Undisturbed, folder: Path, tmp_path: Path) -> Checkout:
    """A copy of the undisturbed run, to be spoiled."""
    return Checkout(folder / "dpscale").copy(tmp_path / "dpscale")


def found(checkout: Checkout, expected: Undisturbed) -> list[str]:
    return differences(expected.ended, Ended.of(checkout.results()))


def test_what_was_not_disturbed_has_no_difference(checkout: Checkout, expected: Undisturbed):
    assert len(expected.ended.trials) == TRIALS
    assert found(checkout, expected) == half_written(checkout.results()) == remains(checkout) == []


def test_a_lost_record_is_found(checkout: Checkout, expected: Undisturbed):
    checkout.results(RECORD).unlink()
    assert found(checkout, expected) == ["campaign/trials/ddp/spawn/1x2/r0: no record"]


def test_a_record_too_many_is_found(checkout: Checkout, expected: Undisturbed):
    shutil.copytree(checkout.results(RECORD).parent, checkout.results(RECORD).parents[1] / "r7")
    assert found(checkout, expected) == ["campaign/trials/ddp/spawn/1x2/r7: a record that nobody planned"]


def test_another_loss_is_found(checkout: Checkout, expected: Undisturbed):
    path = checkout.results(RECORD)
    steps = pq.read_table(path.with_name("steps.parquet")).to_pandas()
    steps.loc[steps.index[-1], "loss"] += 1e-4
    pq.write_table(pa.Table.from_pandas(steps, preserve_index=False), path.with_name("steps.parquet"))
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"steps_sha256": sha256_of(path.with_name("steps.parquet"))}))
    assert found(checkout, expected) == ["campaign/trials/ddp/spawn/1x2/r0: losses differ by up to 0.0001"]


def test_an_epoch_that_is_there_twice_is_found(checkout: Checkout, expected: Undisturbed):
    path = checkout.results(RECORD)
    record = json.loads(path.read_text())
    record["segments"].append(record["segments"][-1])
    path.write_text(json.dumps(record))
    assert any("r0: epochs" in problem for problem in found(checkout, expected))


def test_a_table_without_a_row_is_found(checkout: Checkout, expected: Undisturbed):
    path = checkout.results("campaign/tables/timings.csv")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert any(problem.startswith("tables have") for problem in found(checkout, expected))


def test_files_that_are_cut_under_their_final_names_are_found(checkout: Checkout):
    cut = [checkout.results(RECORD), checkout.results("campaign/tables/summary.csv")]
    for path in cut:
        path.write_bytes(path.read_bytes()[:-20])
    assert [problem.partition(": ")[0] for problem in half_written(checkout.results())] == [str(path) for path in cut]


def test_a_draft_that_a_kill_left_behind_is_no_half_written_record(checkout: Checkout):
    """Between its steps' and its own move to their final names."""
    record = checkout.results(RECORD)
    drafts = record.parent / ".attempt"
    drafts.mkdir()
    shutil.copy(record, drafts)
    record.unlink()
    assert half_written(checkout.results()) == []
    assert [problem.rpartition("/")[2] for problem in remains(checkout)] == [".attempt is left"]


def test_an_orphan_is_found(checkout: Checkout):
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleep, env=checkout.environment()) as orphan:
        said = orphans(checkout, grace_s=0.5)
        orphan.kill()
    assert len(said) == 1
    assert said[0].startswith(f"process {orphan.pid} lives on: {sys.executable}")


def test_locks_and_drafts_that_are_left_are_found(checkout: Checkout):
    for path in (checkout.root / ".snakemake/locks/0.input.lock", checkout.results(RECORD).parent / ".attempt" / "x"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert remains(checkout) == [
        ".snakemake/locks/0.input.lock is left",
        "results/campaign/trials/ddp/spawn/1x2/r0/.attempt is left",
    ]
