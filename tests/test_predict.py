"""From a config to a prediction that was written before it came true: one small experiment, and what would run of others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pipeline import Checkout, small_config, small_experiment

from dpscale.files import write_sealed
from dpscale.forecasting.ledger import Ledger, read_ledger

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


LARGER = "results/small/trials/ddp/spawn/1x4/r0/record.json"


def path_of(copy: Checkout) -> Path:
    return copy.results("small/predictions/ledger.jsonl")


def ledger_of(copy: Checkout) -> Ledger:
    return read_ledger(path_of(copy))


def changed(copy: Checkout, **changes: Any) -> Checkout:
    """With other keys of its experiment."""
    copy.configure(small_config({**EXPERIMENT, **changes}))
    return copy


def verdicts(copy: Checkout) -> list[tuple[str, bool]]:
    """(verdict, in advance) of every prediction for 1x4, in the order of writing."""
    table = copy.table("prediction")
    rows = table[(table.model == "measured parts") & (table.devices == 4)]
    return [(row.verdict, row.in_advance) for row in rows.itertuples()]


def test_a_prediction_is_written_before_its_trial_begins(predicted: Checkout) -> None:
    record = json.loads((predicted.root / LARGER).read_text())
    (entry,) = [entry for entry in ledger_of(predicted).predictions if entry.devices == 4]
    assert entry.predicted_at <= record["launch"]["started_at"]
    assert verdicts(predicted)[0][1]


def test_it_is_made_from_small_trials_the_sweep_and_collectives_alone(predicted: Checkout) -> None:
    for entry in ledger_of(predicted).predictions:
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
    before = path_of(copy).read_bytes()
    again = copy.run("--forcerun", "predict")
    assert again.measured == set()
    assert path_of(copy).read_bytes() == before


def test_larger_trials_wait_for_the_prediction_and_smaller_ones_do_not(tmp_path: Path) -> None:
    copy = Checkout.fresh(tmp_path / "copy", small_config(EXPERIMENT))
    assert "predict" in copy.dry_run(LARGER).jobs
    assert "predict" not in copy.dry_run("results/small/trials/ddp/spawn/1x2/r0/record.json").jobs


@pytest.mark.parametrize("change", [{"batch": {"per_device": 8}}, {"epochs": 3}], ids=str)
def test_another_configuration_measures_larger_trials_again_too_once_it_is_predicted(
    change: dict[str, Any], predicted: Checkout, tmp_path: Path
) -> None:
    planned = changed(predicted.copy(tmp_path / "copy"), **change).dry_run()
    assert {"ddp/spawn/1x1/r0", "ddp/spawn/1x2/r0", "ddp/spawn/1x4/r0"} <= planned.measured
    assert planned.jobs["predict"] == 1


def test_other_training_code_does_so_too(predicted: Checkout, tmp_path: Path) -> None:
    copy = predicted.copy(tmp_path / "copy")
    copy.edit_code("dpscale/measure.py")
    assert "ddp/spawn/1x4/r0" in copy.dry_run().measured


def test_each_configuration_has_verdicts_of_its_own(predicted: Checkout, tmp_path: Path) -> None:
    copy = changed(predicted.copy(tmp_path / "copy"), batch={"per_device": 8})
    before = verdicts(copy)
    copy.run("results/small/tables/prediction.csv", LARGER)
    first, second = verdicts(copy)
    assert [first] == before
    assert second[0] in ("hit", "miss")
    assert second[1]  # a launch of another batch was there, and none of this one
    assert copy.dry_run("results/small/tables/prediction.csv", LARGER).jobs == {}


def test_a_prediction_that_is_written_after_its_trial_ran_says_so_though_the_plan_did_not_know_of_it(
    predicted: Checkout, tmp_path: Path
) -> None:
    copy = predicted.copy(tmp_path / "copy")
    for path in copy.results("small/predictions").iterdir():
        path.unlink()
    changed(copy, topologies=["1x1", "1x2"]).run("results/small/predictions/calibration.json")
    changed(copy).run("results/small/tables/prediction.csv")
    ((_, in_advance),) = verdicts(copy)
    assert not in_advance


def test_what_was_measured_stays_in_the_ledger(predicted: Checkout, tmp_path: Path) -> None:
    copy = predicted.copy(tmp_path / "copy")
    before = verdicts(copy)
    (launch,) = [launch for launch in ledger_of(copy).launches if launch.devices_per_node == 4]
    timings = copy.results("small/tables/timings.csv")
    rows = copy.table("timings")
    rows.loc[rows.devices == 4, ["epoch_time_s", "started_at"]] = [100.0, "2030-01-01T00:00:00+00:00"]
    write_sealed(timings, rows.to_csv(index=False).encode())
    copy.run("results/small/tables/prediction.csv")
    assert verdicts(copy) == before
    assert launch in ledger_of(copy).launches


def test_a_ledger_that_is_lost_is_missed_at_once(predicted: Checkout, tmp_path: Path) -> None:
    copy = predicted.copy(tmp_path / "copy")
    path_of(copy).unlink()
    said = copy.refused("-n")
    assert (
        "results/small/predictions/ledger.jsonl: missing, though calibration.json beside it was written after it; "
        in said
    )
    assert "put the file back as it was, or move it and calibration.json away to begin anew" in said
