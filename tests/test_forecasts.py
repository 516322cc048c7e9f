"""What is predicted from what: planned from the config alone, taken from records, kept as it was made."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from factories import LAUNCH, a_config, a_step, a_trial, an_entry, changed, explained_record, measured
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpscale.config import FigureConfig, load_config
from dpscale.errors import ConfigError, UserError
from dpscale.figures import render
from dpscale.figures.prediction import LAW_LOOKS, prediction
from dpscale.files import seal_of, write_sealed
from dpscale.forecasting import ledger
from dpscale.forecasting.calibration_file import FILE, write_calibrations
from dpscale.forecasting.forecasts import plan_forecasts
from dpscale.forecasting.ledger import Interval
from dpscale.forecasting.measured_parts import exchanges_of, measurements_of
from dpscale.planning.collectives import plan_collectives
from dpscale.planning.plan import plan_trials
from dpscale.scaling_model.laws import LAWS
from dpscale.tables import read_table
from dpscale.tables.prediction import launches_of, make_table
from dpscale.tables.schema import TABLES
from dpscale.tables.trials import timings_of

UP_TO_FOUR = {"calibrate_up_to": 4, "batch_sweep": [8, 32, 64]}


def a_predicting_config(**changes):
    settings = {
        "topologies": ["1x1", "1x2", "1x4", "1x8"],
        "explain": True,
        "launchers": ["spawn"],
        "repeats": 2,
        "collectives": {"operations": ["all_reduce"]},
        "prediction": UP_TO_FOUR,
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
    assert {trial.devices for trial in forecast.trials} == {1, 2, 4}
    assert {str(run.topology) for run in forecast.exchanges} == {"1x2", "1x4"}
    assert [str(target) for target in forecast.targets] == ["1x1", "1x2", "1x4", "1x8"]


def test_a_sweep_has_every_other_batch_on_one_device_in_each_repeat():
    (forecast,) = planned(a_predicting_config())
    assert [(trial.batch_size_per_device, trial.repeat) for trial in forecast.sweep] == [
        (8, 0),
        (64, 0),
        (8, 1),
        (64, 1),
    ]
    assert {(trial.devices, trial.explain, trial.evaluate) for trial in forecast.sweep} == {(1, False, False)}
    assert len({trial.folder for trial in [*forecast.sweep, *forecast.trials]}) == 4 + 6


def test_topologies_may_be_predicted_that_nobody_measures():
    data = a_predicting_config(prediction={**UP_TO_FOUR, "topologies": ["64x8"]})
    assert "64x8" in [str(target) for target in planned(data)[0].targets]


def test_variants_that_are_trained_alike_are_the_same_strategy():
    variants = {
        "ddp": {"topologies": ["1x1", "1x2", "1x4"]},
        "larger": {"base": "ddp", "topologies": ["1x8"], "explain": False},
    }
    variants["other"] = {"base": "ddp", "bucket_cap_MiB": 1, "topologies": ["1x8"], "explain": False}
    (forecast,) = planned(a_predicting_config(strategies=variants))
    assert forecast.same == ["ddp", "larger"]
    assert [str(target) for target in forecast.targets] == ["1x1", "1x2", "1x4", "1x8"]


def test_larger_trials_change_nothing_of_what_is_calibrated_from():
    more = planned(a_predicting_config(topologies=["1x1", "1x2", "1x4", "1x8", "2x8"], launchers=["torchrun"]))[0]
    few = planned(a_predicting_config(launchers=["torchrun"]))[0]
    assert (more.trials, more.sweep, more.exchanges) == (few.trials, few.sweep, few.exchanges)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"explain": None}, "set explain: true"),
        ({"strategies": {"ddp": None}, "topologies": ["1x2", "1x4"]}, "add 1x1 to topologies"),
        ({"collectives": None}, "add collectives: {operations: [all_reduce]}, or set exchanges: buckets"),
        ({"prediction": {**UP_TO_FOUR, "strategies": ["dpd"]}}, "did you mean 'ddp'?"),
        ({"prediction": {**UP_TO_FOUR, "strategies": ["single"]}}, "none of single is explained"),
        ({"prediction": {**UP_TO_FOUR, "topologies": ["two"]}}, "'two' is no topology"),
        ({"strategies": {"single": None, "ddp": {"comm_hook": "powersgd"}}}, "PowerSGD"),
        ({"prediction": {"calibrate_up_to": 4}}, "one batch size on one device (32)"),
        ({"prediction": {**UP_TO_FOUR, "calibrate_up_to": 2}}, "gradients are exchanged on 2 devices only"),
        (
            {"prediction": {**UP_TO_FOUR, "exchanges": "buckets"}, "topologies": ["1x1", "1x2", "1x8"]},
            "on 2 devices only",
        ),
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

TODAY = "2026-11-30T10:00:00+00:00"  # after LAUNCH, of which the day before is that of `an_entry`
LATER = "2026-12-24T10:00:00+00:00"


def a_launch(epoch_s=2.1, started_at="2026-01-01T00:00:00+00:00", **changes):
    """Of what `an_entry` predicts, on the day after it."""
    values = {"configuration": a_trial().configuration, "strategy": "ddp", "launcher": "spawn", "repeat": 0}
    values |= {"nodes": 1, "devices_per_node": 4}
    return ledger.Launch(epoch_time_s=epoch_s, started_at=started_at, **values | changes)


@pytest.fixture
def path(tmp_path):
    """A ledger of one prediction and one launch of it."""
    path = tmp_path / ledger.LEDGER
    ledger.append_predictions(path, [an_entry()])
    ledger.append_launches(path, [a_launch()])
    return path


OLD_LINE = json.dumps({**asdict(an_entry()), "measured_before": False} | {"configuration": 0}).replace(
    ' "configuration": 0,', ""
)  # as it was written before lines had a digest


def test_the_same_prediction_is_written_once_with_its_first_date(path):
    assert ledger.append_predictions(path, [an_entry(predicted_at=TODAY)]) == []
    assert ledger.read_ledger(path).predictions == [an_entry()]


@pytest.mark.parametrize(
    "change",
    [{"code": "f" * 16}, {"inputs": {"other": "cd" * 32}}, {"devices_per_node": 8}, {"configuration": "e" * 16}],
    ids=str,
)
def test_what_is_written_later_leaves_what_is_there_as_it_was(path, change):
    before = path.read_bytes()
    assert ledger.append_predictions(path, [an_entry(**change)]) == [an_entry(**change)]
    assert path.read_bytes().startswith(before)
    assert len(ledger.read_ledger(path).predictions) == 2


def test_a_prediction_that_is_made_again_after_another_is_the_latest_with_its_own_date(path):
    other, again = an_entry(code="f" * 16), an_entry(predicted_at=TODAY)
    for entry in (other, again):
        ledger.append_predictions(path, [entry])
    assert ledger.read_ledger(path).predictions == [an_entry(), other, again]


def test_launches_of_what_is_predicted_are_kept_once(path):
    of_another_batch = a_launch(configuration="e" * 16)
    before = path.read_bytes()
    known = ledger.append_launches(path, [a_launch(), of_another_batch, a_launch(devices_per_node=8)])
    assert path.read_bytes() == before
    assert known.launches == [a_launch()]
    assert ledger.append_launches(path, [a_launch(started_at=LATER)]).launches == [
        a_launch(),
        a_launch(started_at=LATER),
    ]


def edited(lines):
    return [lines[0].replace('"steps": 2.0', '"steps": 3.0'), *lines[1:]]


def with_another_end(lines):
    return [*lines[:-1], lines[-1].replace('"epoch_time_s": 2.1', '"epoch_time_s": 9.9')]


def without_the_first(lines):
    return lines[1:]


def with_a_line_of_ones_own(lines):
    return [*lines, OLD_LINE + "\n"]


@pytest.mark.parametrize("change", [edited, with_another_end, without_the_first, with_a_line_of_ones_own])
def test_a_ledger_that_was_edited_is_refused_without_its_seal_too(path, change):
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(change(lines)))
    seal_of(path).unlink()
    with pytest.raises(
        UserError, match=rf"{path}: line \d, or one before it, is not as it was written; put the file back"
    ):
        ledger.read_ledger(path)


def test_a_ledger_that_is_as_it_was_needs_no_seal(path):
    """Its writer may be killed before it has sealed it."""
    seal_of(path).unlink()
    assert ledger.read_ledger(path).launches == [a_launch()]
    ledger.refuse_lost(path.parent)


@pytest.mark.parametrize("loss", ["the file", "its seal and end"])
def test_a_ledger_that_is_lost_or_cut_is_missed_by_the_calibration_that_was_written_after_it(path, loss):
    write_calibrations(path.with_name(FILE), [], {"ledger": ledger.read_ledger(path).digests[-1]})
    ledger.refuse_lost(path.parent)
    seal_of(path).unlink()
    if loss == "the file":
        path.unlink()
    else:
        path.write_text(path.read_text().splitlines(keepends=True)[0])
    with pytest.raises(
        UserError, match=rf"{path}: .*missing.*; put the file back as it was, or move it and {FILE} away"
    ):
        ledger.refuse_lost(path.parent)


@pytest.fixture
def kept(tmp_path):
    """A folder of predictions beside the table that was made of them."""
    folder = tmp_path / "predictions"
    ledger.append_predictions(folder / ledger.LEDGER, [an_entry()])
    found = ledger.append_launches(folder / ledger.LEDGER, [a_launch(), a_launch(started_at=LATER)])
    (tmp_path / ledger.TABLE).parent.mkdir()
    write_sealed(tmp_path / ledger.TABLE, make_table("small", found).to_csv(index=False).encode())
    return folder


@pytest.mark.parametrize("lines", [1, 2])
def test_launches_that_were_cut_off_with_the_seal_are_missed_by_the_table_that_was_made_of_them(kept, lines):
    path = kept / ledger.LEDGER
    ledger.refuse_lost(kept)
    seal_of(path).unlink()
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    with pytest.raises(UserError, match=rf"{path}: a line that .*prediction.csv was written after is missing; put the"):
        ledger.refuse_lost(kept)


@pytest.mark.parametrize("rest", ["", "a table", "of before\n1\n"])
def test_no_launch_is_missed_by_a_table_that_does_not_name_a_line(kept, rest):
    """Such as one that was cut, which its own readers refuse, or of an earlier version."""
    (kept.parent / ledger.TABLE).write_text(rest)
    ledger.refuse_lost(kept)
    seal_of(kept.parent / ledger.TABLE).unlink()
    ledger.refuse_lost(kept)


def test_a_ledger_that_is_begun_anew_is_not_held_against_the_table_of_the_one_before(kept):
    (kept / ledger.LEDGER).unlink()
    ledger.refuse_lost(kept)
    ledger.append_predictions(kept / ledger.LEDGER, [an_entry(predicted_at=TODAY)])
    ledger.refuse_lost(kept)


def test_without_predictions_nothing_is_lost(tmp_path):
    ledger.refuse_lost(tmp_path / "predictions")


def test_a_ledger_of_before_lines_had_digests_is_read_and_kept_from_then_on(tmp_path):
    path = tmp_path / ledger.LEDGER
    path.write_text(OLD_LINE + "\n")
    assert ledger.read_ledger(path).predictions == [an_entry(configuration=None)]
    ledger.append_predictions(path, [an_entry()])
    assert ledger.read_ledger(path).predictions == [an_entry(configuration=None), an_entry()]
    path.write_text(path.read_text().replace('"steps": 2.0', '"steps": 3.0', 1))
    seal_of(path).unlink()
    with pytest.raises(UserError, match="line 2, or one before it, is not as it was written"):
        ledger.read_ledger(path)


def test_a_line_that_is_no_prediction_is_named(tmp_path):
    path = tmp_path / ledger.LEDGER
    path.write_text(f'{OLD_LINE}\n{{"predicted_at": "today"}}\n')
    with pytest.raises(UserError, match="line 2 is no prediction"):
        ledger.read_ledger(path)


# The table and its figure


def launches(epochs_s, **changes):
    return [a_launch(epoch_s, repeat=repeat, **changes) for repeat, epoch_s in enumerate(epochs_s)]


def table(entries, epochs_s=(), measured_again=(), **changes):
    """Of launches with such times, of which some were measured again."""
    found = [*launches(epochs_s, **changes), *launches(measured_again, started_at=LATER)]
    return make_table("quickstart", ledger.Ledger(entries, found, digests=["ab" * 32]))


def of_parts(rows):
    return rows[rows.model == "measured parts"]


def test_a_prediction_that_came_true_is_a_hit_and_laws_stand_beside_it():
    ours, law = table([an_entry()], [2.2, 2.1, 2.6]).itertuples()
    assert (ours.model, law.model) == ("measured parts", "ideal")
    assert (ours.verdict, ours.in_advance) == ("hit", True)
    assert (ours.launches, ours.launches_inside) == (3, 2)
    assert ours.error_percent == pytest.approx(100 * (2.0 - 2.2) / 2.2)
    assert law.error_percent == pytest.approx(100 * (1.5 - 2.2) / 2.2)


def test_one_that_did_not_is_a_miss():
    assert table([an_entry()], [2.6]).verdict[0] == "miss"


def test_what_was_not_measured_has_no_error():
    row = table([an_entry()]).iloc[0]
    assert row.verdict == "not measured yet"
    assert row.in_advance
    assert pd.isna(row.error_percent)
    assert pd.isna(row.measured_epoch_time_s)


def test_what_was_calibrated_from_is_no_hit_and_not_in_advance():
    entry = an_entry(inputs={"quickstart/trials/ddp/spawn/1x4/r0/record.json": "ab" * 32}, predicted_at=TODAY)
    row = table([entry], [2.0], measured_again=[9.0]).iloc[0]
    assert (row.verdict, row.in_advance, row.measured_epoch_time_s) == ("calibrated from", False, 2.0)


def test_a_topology_that_was_not_measured_is_predicted_on_however_few_devices():
    row = table([an_entry(calibrated_up_to=8)], [2.2]).iloc[0]
    assert (row.verdict, row.calibrating, row.in_advance) == ("hit", False, True)


def test_what_was_measured_is_of_a_trial_however_it_is_called():
    trial = a_trial(strategy="larger", base="ddp", devices_per_node=4)
    (launch,) = launches_of(timings_of([measured(trial, 2.2), (replace(trial, repeat=1), None, None)]))
    assert launch == a_launch(strategy="larger", started_at=LAUNCH["started_at"])
    assert make_table("quickstart", ledger.Ledger([an_entry()], [launch])).verdict[0] == "hit"


def test_a_launch_of_another_configuration_judges_nothing():
    """Another batch, say: a prediction for batch 16 is not tested by a launch with batch 4."""
    row = table([an_entry()], [2.0], configuration=a_trial(batch_size_per_device=4).configuration).iloc[0]
    assert (row.verdict, row.launches, row.in_advance) == ("not measured yet", 0, True)


def test_a_prediction_is_in_advance_of_a_launch_by_their_dates_alone():
    """The launch began before the ledger was begun anew, or its record was out of the plan meanwhile."""
    rows = of_parts(table([an_entry(), an_entry(code="f" * 16, predicted_at=TODAY)], [2.2]))
    assert rows.in_advance.tolist() == [True, False]
    assert rows.current.tolist() == [False, True]
    assert rows.verdict.tolist() == ["hit", "hit"]


@pytest.mark.parametrize("measured_again", [[9.0], [9.0, 9.0]])
def test_what_is_measured_again_leaves_verdicts_as_they_were(measured_again):
    row = table([an_entry()], [2.2, 2.2], measured_again=measured_again).iloc[0]
    assert (row.verdict, row.measured_epoch_time_s, row.launches) == ("hit", 2.2, 2)


def test_further_repeats_are_held_against_a_prediction_too():
    row = table([an_entry()], [2.2], measured_again=[9.0, 2.0, 2.1]).iloc[0]
    assert (row.launches, row.measured_epoch_time_s) == (3, 2.1)  # 2.2, 2.0 and 2.1


def test_a_prediction_after_the_fact_is_tested_by_the_first_launch_that_comes_later():
    row = table([an_entry(predicted_at=TODAY)], [2.2], measured_again=[9.0]).iloc[0]
    assert (row.verdict, row.in_advance, row.measured_epoch_time_s) == ("miss", True, 9.0)


def test_a_prediction_of_nobody_knows_which_configuration_is_not_compared():
    row = table([an_entry(configuration=None)], [2.2]).iloc[0]
    assert row.verdict == "not comparable: it was written before the ledger kept of which configuration a prediction is"
    assert pd.isna(row.in_advance)
    assert pd.isna(row.error_percent)


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
    assert "knee: efficiency 0.5" in text


def test_the_figure_says_how_wide_the_interval_of_a_hit_is(tmp_path):
    wide = {"80": Interval(low=0.05, high=20.0), "95": Interval(low=0.01, high=50.0)}
    assert "a factor of 400" in drawn(table([an_entry(intervals=wide)], [2.2]), tmp_path)
    many = [an_entry(nodes=count, intervals=wide if count == 3 else an_entry().intervals) for count in range(1, 7)]
    rows = pd.concat([table([one], [2.2]).assign(nodes=one.nodes, devices=4 * one.nodes) for one in many])
    same = dict.fromkeys(["measured_epoch_time_s", "measured_epoch_time_s_low", "measured_epoch_time_s_high"], 2.2)
    rows = rows.assign(verdict="hit", error_percent=1.0, **same)
    assert "of which 3x4 has the widest" in drawn(rows[rows.model == "measured parts"], tmp_path)


def test_every_law_has_a_look_of_its_own():
    assert LAW_LOOKS.keys() == LAWS.keys()
    assert len(set(LAW_LOOKS.values())) == len({line for line, _ in LAW_LOOKS.values()}) == len(LAWS)


def panels(rows, tmp_path) -> tuple[Axes, Axes]:
    rows.to_csv(tmp_path / "prediction.csv", index=False)
    figure = Figure()
    prediction(figure, {"prediction": read_table(tmp_path, "prediction")}, FigureConfig())
    times, parts = figure.axes
    return times, parts


def test_topologies_with_as_many_devices_are_all_drawn(tmp_path):
    entries = [an_entry(devices_per_node=2), an_entry(nodes=2, devices_per_node=1, epoch_time_s=2.2)]
    times, _ = panels(table(entries), tmp_path)
    assert "predicted, on more nodes" in times.get_legend_handles_labels()[1]
    alone, _ = panels(table(entries[:1]), tmp_path)
    assert "predicted, on more nodes" not in alone.get_legend_handles_labels()[1]


def test_the_knee_is_marked_at_its_devices_and_only_where_there_is_one(tmp_path):
    good, poor = an_entry(), an_entry(nodes=2, scaling_efficiency=0.4)
    times, _ = panels(table([good, poor]), tmp_path)
    marks = [line for line in times.lines if str(line.get_label()).startswith("knee")]
    assert [list(line.get_xdata()) for line in marks] == [[4, 4]]
    times, _ = panels(table([good]), tmp_path)
    assert not any(str(line.get_label()).startswith("knee") for line in times.lines)


def test_names_of_many_topologies_do_not_overlap(tmp_path):
    entries = [an_entry(nodes=2**power) for power in range(10)]
    _, parts = panels(table(entries), tmp_path)
    figure = parts.figure
    figure.set_layout_engine("constrained")
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in (*parts.get_xticklabels(), parts.xaxis.label, parts.get_legend())]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_the_figure_of_nothing_says_how_to_ask(tmp_path):
    assert "prediction.calibrate_up_to" in drawn(table([]), tmp_path)


def test_every_column_of_the_table_is_filled(tmp_path):
    rows = table([an_entry()], [2.2] * 6)
    assert list(rows.columns) == list(TABLES["prediction"])
    assert not np.array(rows.iloc[0].isna()).any()
