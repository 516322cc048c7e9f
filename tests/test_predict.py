"""From a config to a prediction that was written before it came true: one small experiment, and what would run of others."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pipeline import Checkout, small_config, small_experiment

from dpscale.forecasting.ledger import read_ledger

EXPERIMENT = small_experiment(
    strategies={"ddp": None},
    topologies=["1x1", "1x2", "1x4"],
    explain=True,
    evaluate=False,
    monitor_interval_s=None,
    collectives={"operations": ["all_reduce"], "sizes": "4KiB..256KiB", "blocks": 10, "seconds_per_size": 0.05}
    | {"topologies": ["1x2", "1x3"]},
    prediction={"calibrate_up_to": 3, "batch_sweep": [4], "topologies": ["1x4", "1x8"]},
)


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    copy = Checkout.fresh(tmp_path_factory.mktemp("predict") / "copy", small_config(EXPERIMENT))
    copy.run(timeout_s=600)
    return copy


def ledger_of(copy: Checkout) -> Path:
    return copy.results("small/predictions/ledger.jsonl")


def test_a_prediction_is_written_before_its_trial_begins(predicted: Checkout) -> None:
    record = json.loads(predicted.results("small/trials/ddp/spawn/1x4/r0/record.json").read_text())
    (entry,) = [entry for entry in read_ledger(ledger_of(predicted)) if entry.devices == 4]
    assert not entry.measured_before
    assert entry.predicted_at <= record["launch"]["started_at"]


def test_it_is_made_from_small_trials_the_sweep_and_collectives_alone(predicted: Checkout) -> None:
    for entry in read_ledger(ledger_of(predicted)):
        assert {re.sub(r"/(r0/)?(record|collectives)\.json$", "", path) for path in entry.inputs} == {
            *(f"small/trials/ddp/spawn/1x{count}" for count in (1, 2)),
            "small/trials/ddp_batch_4/spawn/1x1",
            *(f"small/collectives/spawn/1x{count}" for count in (2, 3)),
        }


def test_the_table_compares_what_was_predicted_with_what_was_measured(predicted: Checkout) -> None:
    table = predicted.table("prediction")
    table = table[table.model == "measured parts"].set_index("devices")
    assert set(table.index) == {1, 2, 4, 8}
    assert table.verdict[[1, 2]].tolist() == ["calibrated from"] * 2
    assert table.verdict[4] in ("hit", "miss")
    assert table.verdict[8] == "not measured yet"
    assert (table.predicted_epoch_time_s > 0).all()


def test_a_sweep_is_in_no_table_of_trials(predicted: Checkout) -> None:
    assert set(predicted.table("timings").strategy) == {"ddp"}


def test_nothing_is_done_twice_and_a_prediction_made_anew_adds_no_line(predicted: Checkout, tmp_path: Path) -> None:
    assert predicted.dry_run().jobs == {}
    copy = predicted.copy(tmp_path / "copy")
    before = ledger_of(copy).read_bytes()
    again = copy.run("--forcerun", "predict")
    assert again.measured == set()
    assert ledger_of(copy).read_bytes() == before


def test_larger_trials_wait_for_the_prediction_and_smaller_ones_do_not(tmp_path: Path) -> None:
    copy = Checkout.fresh(tmp_path / "copy", small_config(EXPERIMENT))
    assert "predict" in copy.dry_run("results/small/trials/ddp/spawn/1x4/r0/record.json").jobs
    assert "predict" not in copy.dry_run("results/small/trials/ddp/spawn/1x2/r0/record.json").jobs
