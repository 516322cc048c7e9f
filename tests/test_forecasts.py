"""What is predicted from what: planned from the config alone, taken from records, kept as it was made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from factories import a_config, a_step, a_trial, an_entry, changed, explained_record, measured

from dpscale.collectives.planning import plan_collectives
from dpscale.config import FigureConfig, load_config
from dpscale.errors import ConfigError, UserError
from dpscale.figures import render
from dpscale.files import seal_of
from dpscale.forecasting import ledger
from dpscale.forecasting.forecasts import plan_forecasts
from dpscale.forecasting.measured_parts import exchanges_of, measurements_of
from dpscale.plan import plan_trials
from dpscale.tables import read_table
from dpscale.tables.prediction import make_table
from dpscale.tables.schema import TABLES
from dpscale.tables.trials import timings_of

UP_TO_TWO = {"calibrate_up_to": 2, "batch_sweep": [8, 32, 64]}


def a_predicting_config(**changes):
    settings = {
        "topologies": ["1x1", "1x2", "1x4"],
        "explain": True,
        "launchers": ["spawn"],
        "repeats": 2,
        "collectives": {"operations": ["all_reduce"]},
        "prediction": UP_TO_TWO,
    }
    return a_config(**settings | changes)


def planned(data):
    config = load_config(data)
    return plan_forecasts(config, plan_trials(config), plan_collectives(config))["quick"]


def problems(data):
    with pytest.raises(ConfigError) as refused:
        planned(data)
    return str(refused.value)


# The plan


def test_nothing_is_predicted_unless_it_is_asked_for():
    assert planned(a_config()) == []


def test_what_can_be_explained_is_predicted_from_small_trials_alone():
    (forecast,) = planned(a_predicting_config())
    assert (forecast.strategy, forecast.launcher) == ("ddp", "spawn")
    assert {trial.devices for trial in forecast.trials} == {1, 2}
    assert {str(run.topology) for run in forecast.exchanges} == {"1x2"}
    assert [str(target) for target in forecast.targets] == ["1x1", "1x2", "1x4"]


def test_a_sweep_has_every_other_batch_on_one_device_in_each_repeat():
    (forecast,) = planned(a_predicting_config())
    assert [(trial.batch_size_per_device, trial.repeat) for trial in forecast.sweep] == [
        (8, 0),
        (64, 0),
        (8, 1),
        (64, 1),
    ]
    assert {(trial.devices, trial.explain, trial.evaluate) for trial in forecast.sweep} == {(1, False, False)}
    assert len({trial.folder for trial in [*forecast.sweep, *forecast.trials]}) == 4 + 4


def test_topologies_may_be_predicted_that_nobody_measures():
    data = a_predicting_config(prediction={**UP_TO_TWO, "topologies": ["64x8"]})
    assert "64x8" in [str(target) for target in planned(data)[0].targets]


def test_variants_that_are_trained_alike_are_the_same_strategy():
    variants = {
        "ddp": {"topologies": ["1x1", "1x2"]},
        "larger": {"base": "ddp", "topologies": ["1x4"], "explain": False},
    }
    variants["other"] = {"base": "ddp", "bucket_cap_MiB": 1, "topologies": ["1x8"], "explain": False}
    (forecast,) = planned(a_predicting_config(strategies=variants))
    assert forecast.same == ["ddp", "larger"]
    assert [str(target) for target in forecast.targets] == ["1x1", "1x2", "1x4"]


def test_larger_trials_change_nothing_of_what_is_calibrated_from():
    more = planned(a_predicting_config(topologies=["1x1", "1x2", "1x4", "1x8"]))[0]
    few = planned(a_predicting_config())[0]
    assert (more.trials, more.sweep, more.exchanges) == (few.trials, few.sweep, few.exchanges)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"explain": None}, "set explain: true"),
        ({"strategies": {"ddp": None}, "topologies": ["1x2", "1x4"]}, "add 1x1 to topologies"),
        ({"collectives": None}, "add collectives: {operations: [all_reduce]}, or set exchanges: buckets"),
        ({"prediction": {**UP_TO_TWO, "strategies": ["dpd"]}}, "did you mean 'ddp'?"),
        ({"prediction": {**UP_TO_TWO, "strategies": ["single"]}}, "none of single is explained"),
        ({"prediction": {**UP_TO_TWO, "topologies": ["two"]}}, "'two' is no topology"),
        ({"strategies": {"single": None, "ddp": {"comm_hook": "powersgd"}}}, "PowerSGD"),
        ({"strategies": {"ddp": None, "ddp_batch_8": {"base": "ddp"}}}, "rename that"),
    ],
)
def test_what_can_not_be_predicted_is_refused_with_a_remedy(changes, said):
    text = problems(a_predicting_config(**changes))
    assert text.startswith("config.yaml: experiments.quick.prediction")
    assert said in text


def test_settings_without_a_prediction_are_refused():
    with pytest.raises(ConfigError, match="nothing is predicted without calibrate_up_to"):
        load_config(changed(a_config(), ["experiments", "quick", "prediction"], {"batch_sweep": [8]}))


# Parts, from records

ALONE = a_trial(devices_per_node=1, explain=True)
PAIR = a_trial(devices_per_node=2, explain=True)
STEP = a_step(exchanges=(4, 6))  # 30 ms until the last bucket is ready, 6 until it is exchanged, 10 more


def parts(**controls):
    found = [explained_record(ALONE), explained_record(PAIR, **{"full": STEP, **controls})]
    return measurements_of([(record, steps) for _, record, steps in found], [], [])


def test_buckets_are_ready_at_their_share_of_a_step_of_a_rank_alone():
    found = parts()
    assert found.ready_share[0] == pytest.approx([20 / 40, 30 / 40])
    assert found.bucket_bytes == [2**20, 3 * 2**20]


def test_half_precision_exchanges_half_the_bytes():
    trial = replace(PAIR, options={"comm_hook": "bf16"})
    _, record, _ = explained_record(trial, full=STEP)
    assert [one.nbytes for one in exchanges_of(record, record.explained)] == [2**19, 3 * 2**19]


def test_an_exchange_lasts_from_the_later_of_its_readiness_and_the_one_before_on_the_rank_that_came_last():
    early, late = a_step(ready=(20, 30), exchanges=(14, 9)), a_step(ready=(30, 35), exchanges=(4, 4))
    _, record, _ = explained_record(PAIR, full=[early, late])
    first, second = exchanges_of(record, record.explained)
    assert first.time_s == pytest.approx(0.004)  # of the late rank; the early one waited for 10 ms more
    assert second.time_s == pytest.approx(
        0.004
    )  # from 35 to 39; of the early rank from 34, when the first was exchanged


def test_an_exchange_that_is_queued_on_all_ranks_lasts_as_long_as_on_the_median_rank():
    """Each hears of the end of the one before a little early or late: the least of all would be too little."""
    prompt, tardy = a_step(ready=(20, 21), exchanges=(10, 19)), a_step(ready=(20, 21), exchanges=(12, 19))
    _, record, _ = explained_record(PAIR, full=[prompt, tardy])
    _, second = exchanges_of(record, record.explained)
    assert second.time_s == pytest.approx(0.009)  # 10 ms after 30 on one, 8 after 32 on the other


def test_contention_is_a_share_of_a_step_alone():
    found = parts(
        independent=a_step(forward=14, ready=(24, 34)), full=a_step(forward=14, ready=(24, 34), exchanges=(4, 6))
    )
    assert {one.ranks_per_node for one in found.contention} == {2}
    assert found.contention[0].share == pytest.approx(4 / 40)


def test_stretch_is_by_how_much_exchanges_beside_backward_slow_it():
    slowed = a_step(ready=(20, 32), exchanges=(4, 6))  # 2 ms later, and 4 ms of exchange before that
    assert parts(full=slowed).stretch[0] == pytest.approx(2 / 4)


def test_negative_stretch_is_contention_that_is_not_there():
    found = parts(independent=a_step(ready=(24, 34)), full=a_step(ready=(23, 32), exchanges=(4, 6)))
    assert found.stretch == [0.0] * 6
    assert found.contention[0].share == pytest.approx((4 - 2) / 40)


def test_a_step_of_one_device_counts_without_its_wait_for_the_loaders_start():
    (step,) = parts().steps
    assert step.batch_size == 32
    assert step.step_s == pytest.approx(1.0)  # two steps in 2 s


def test_of_a_training_by_steps_all_of_its_time_is_its_steps():
    trial = replace(ALONE, explain=False, epochs=None, warmup_epochs=None, steps=6, warmup_steps=2)
    _, record, steps = measured(trial)
    found = measurements_of([(record, steps)], [], [])
    assert found.epoch_fixed_s == [0.0]
    assert found.steps[0].step_s == pytest.approx(1.0)


def test_a_sweep_adds_batches_of_one_device():
    trial = replace(ALONE, strategy="ddp_batch_8", explain=False, batch_size_per_device=8)
    _, record, steps = measured(trial)
    assert [step.batch_size for step in measurements_of([], [(record, steps)], []).steps] == [8]


# The ledger


def test_the_same_prediction_is_written_once_with_its_first_date(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, [an_entry()])
    assert ledger.append(path, [an_entry(predicted_at="2027-01-01T00:00:00+00:00", measured_before=True)]) == []
    assert ledger.read_ledger(path) == [an_entry()]


@pytest.mark.parametrize("change", [{"code": "f" * 16}, {"inputs": {"other": "cd" * 32}}, {"devices_per_node": 8}])
def test_what_is_written_later_leaves_what_is_there_as_it_was(tmp_path, change):
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, [an_entry()])
    before = path.read_bytes()
    assert ledger.append(path, [an_entry(**change)]) == [an_entry(**change)]
    assert path.read_bytes().startswith(before)
    assert len(ledger.read_ledger(path)) == 2


def test_a_line_that_is_no_prediction_is_named(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger.append(path, [an_entry()])
    path.write_text(path.read_text() + '{"predicted_at": "today"}\n')
    with pytest.raises(UserError, match="cut or changed since it was made"):
        ledger.read_ledger(path)
    seal_of(path).unlink()  # as of a ledger that was begun before there were seals
    with pytest.raises(UserError, match="line 2 is no prediction"):
        ledger.read_ledger(path)


# The table and its figure


def table(entries, epochs_s=(), tmp_path=None):
    trial = a_trial(devices_per_node=4)
    found = [measured(replace(trial, repeat=repeat), epoch_s) for repeat, epoch_s in enumerate(epochs_s)]
    return make_table("quickstart", entries, timings_of(found or [(trial, None, None)]))


def test_a_prediction_that_came_true_is_a_hit_and_laws_stand_beside_it():
    ours, law = table([an_entry()], [2.2, 2.1, 2.6]).itertuples()
    assert (ours.model, law.model) == ("measured parts", "ideal")
    assert ours.verdict == "hit"
    assert (ours.launches, ours.launches_inside) == (3, 2)
    assert ours.error_percent == pytest.approx(100 * (2.0 - 2.2) / 2.2)
    assert law.error_percent == pytest.approx(100 * (1.5 - 2.2) / 2.2)


def test_one_that_did_not_is_a_miss():
    assert table([an_entry()], [2.6]).verdict[0] == "miss"


def test_what_was_not_measured_has_no_error():
    row = table([an_entry()]).iloc[0]
    assert row.verdict == "not measured yet"
    assert pd.isna(row.error_percent)
    assert pd.isna(row.measured_epoch_time_s)


def test_what_was_calibrated_from_is_no_hit():
    assert table([an_entry(calibrated_up_to=4)], [2.0]).verdict[0] == "calibrated from"


def test_a_prediction_after_the_fact_says_so():
    rows = table([an_entry(), an_entry(code="f" * 16, measured_before=True)], [2.2])
    ours = rows[rows.model == "measured parts"]
    assert ours.in_advance.tolist() == [True, False]
    assert ours.current.tolist() == [False, True]


def drawn(rows, tmp_path) -> str:
    rows.to_csv(tmp_path / "prediction.csv", index=False)
    tables = {"prediction": read_table(tmp_path, "prediction")}
    return render("prediction", tables, FigureConfig(), ["svg"])["svg"].decode()


def test_the_figure_says_what_came_true_and_where_the_knee_is(tmp_path):
    entries = [
        an_entry(devices_per_node=1, scaling_efficiency=1.0),
        an_entry(),
        an_entry(nodes=2, scaling_efficiency=0.4),
    ]
    text = drawn(table(entries, [2.2, 2.1]), tmp_path)
    assert "predicted 2.00 s, measured" in text
    assert "hit" in text
    assert "limited by exposed communication" in text
    assert "ideal" in text


def test_the_figure_of_nothing_says_how_to_ask(tmp_path):
    assert "prediction.calibrate_up_to" in drawn(table([]), tmp_path)


def test_every_column_of_the_table_is_filled(tmp_path):
    rows = table([an_entry()], [2.2] * 6)
    assert list(rows.columns) == list(TABLES["prediction"])
    assert not np.array(rows.iloc[0].isna()).any()
