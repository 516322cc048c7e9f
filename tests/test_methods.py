"""The methods page says what its records, plan and tables say, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import (
    MACHINE,
    a_config,
    a_trial,
    an_entry,
    an_unavailable_record,
    explained_record,
    measured,
    repeats,
)

from dpscale.config import load_config
from dpscale.forecasting.ledger import Entry, Launch, Ledger
from dpscale.methods import sections_of
from dpscale.methods.page import page
from dpscale.methods.study import Section, Study, Table
from dpscale.record import Record
from dpscale.tables import make_tables
from dpscale.tables.prediction import launches_of
from dpscale.tables.prediction import make_table as make_predictions
from dpscale.tables.schema import Measured, frame
from dpscale.trial import PLACEBO
from dpscale.words import counted, listed
from dpscale.workloads.prepared import Manifest

SCRIPTS = Path(__file__).parents[1] / "scripts"
SINGLE = a_trial(strategy="single", devices_per_node=1)
DDP = a_trial()
GPU = {
    "device_model": "NVIDIA V100",
    "devices_per_machine": 8,
    "device_memory_bytes": 32 * 2**30,
    "driver": "580.65",
    "cuda": "13.0",
    "nccl": "2.28.3",
    "os": "Linux",
    "settings": {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "1"},
}
MANIFEST = Manifest(
    format_version=3,
    dataset="digits",
    kind="images",
    sample_shape=[1, 28, 28],
    classes=10,
    counts={"train": 1437, "test": 360},
    mean=[0.5],
    std=[0.2],
    packing=None,
    sha256={},
)


def a_study(found: list[Measured], **settings: Any) -> Study:
    (experiment,) = load_config(a_config(**settings)).experiments.values()
    tables = {**make_tables(found), **{name: frame(name, []) for name in ("collectives", "prediction")}}
    return Study(
        name="quickstart",
        settings=experiment,
        trials=[trial for trial, _, _ in found],
        records=[record for _, record, _ in found if record is not None],
        tables=tables,
        manifest=MANIFEST,
    )


def said(study: Study) -> dict[str, str]:
    """Title -> all text below it."""
    return {
        section.title: " ".join(
            [
                *(sentence for sentences in section.paragraphs for sentence in sentences),
                *(cell for table in section.tables for row in table.rows for cell in row),
            ]
        )
        for section in sections_of(study)
    }


FEW = [*repeats(SINGLE, [4.0, 4.2, 4.4]), *repeats(DDP, [2.0, 2.1, 2.2])]
MANY = [*repeats(SINGLE, [4 + i / 10 for i in range(7)]), *repeats(DDP, [2 + i / 10 for i in range(7)])]


def test_the_design_counts_what_was_planned_and_measured() -> None:
    text = said(a_study([*FEW, (a_trial(devices_per_node=4), None, None)]))["Design"]
    assert "compares 2 strategies of data-parallel training, started by spawn, on 1x1, 1x2 and 1x4" in text
    assert (
        "3 cells of strategy, launcher and topology are launched 1 to 3 times each: 7 launches, of which 6 were" in text
    )


def test_the_machine_and_the_software_are_those_of_the_records() -> None:
    found = [measured(DDP, environment={**MACHINE, **GPU})]
    text = said(a_study(found))
    assert "Processor: Some CPU, of which 2 logical CPUs were usable by the ranks." in text["Machine"]
    assert "GPUs: 8 x NVIDIA V100 on a node." in text["Machine"]
    assert "Memory of a GPU: 32.0 GiB." in text["Machine"]
    assert "Measured from 2026-01-01 00:00 to 2026-01-01 00:01 UTC." in text["Machine"]
    assert "Python 3.11.2, PyTorch 2.14.1, CUDA 13.0, NCCL 2.28.3 and the NVIDIA driver 580.65." in text["Software"]
    assert "NCCL_DEBUG=WARN, OMP_NUM_THREADS=1" in text["Software"]
    assert "commit 0123456789ab; the digest of its syntax trees is 0123456789abcdef" in text["Software"]


def test_what_a_record_does_not_tell_is_not_told() -> None:
    lost = a_trial(strategy="data_parallel", devices_per_node=2)
    text = " ".join(said(a_study([*FEW, (lost, None, None)])).values())
    assert "GPU" not in text.replace("GPUs over time", "")
    assert not {"None", "nan", "NaN"} & set(text.replace(".", " ").replace(",", " ").split())
    assert "CUDA" not in text
    assert "Environment of all ranks" not in text


def test_machines_that_differ_are_all_named() -> None:
    other = {**MACHINE, "node": "desk", "cpu_model": "Other CPU"}
    record = measured(DDP)[1]
    assert record is not None
    found = [measured(DDP, nodes=[MACHINE, other])]
    found = [(trial, mine, steps) for trial, mine, steps in found]
    study = a_study(FEW)
    text = said(replace(study, records=[one for _, one, _ in found if one is not None]))["Machine"]
    assert "Measured on 2 nodes: laptop and desk." in text
    assert "Some CPU" in text
    assert "Other CPU" in text


def test_the_workload_is_that_of_the_plan_and_the_prepared_data() -> None:
    optimizer = {
        "name": "sgd",
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "lr_reference_batch": 32,
        "schedule": {"kind": "step", "milestones": [30, 60], "gamma": None, "warmup_epochs": 5},
    }
    text = said(
        a_study([measured(a_trial(optimizer=optimizer)), measured(a_trial(devices_per_node=4, optimizer=optimizer))])
    )["Workload"]
    assert "It holds 1,437 training and 360 test samples, images of (1, 28, 28), of 10 classes." in text
    assert "Batch: 32 samples per device and step (weak scaling)." in text
    assert "stochastic gradient descent, momentum 0.9 and weight decay 0.0001, learning rate 0.1" in text
    assert "grows in proportion with the global batch: 0.2 on 2 devices and 0.4 on 4 devices" in text
    assert "The rate rises in proportion to the step over the first 5 epochs." in text
    assert "The rate is multiplied by 0.1 after epochs 30 and 60." in text
    assert "weights float32" in text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"scaling": "strong"}, "Batch: 64 samples per step over all devices (strong scaling)."),
        ({"train_samples": 100}, "Of these, the first 100 training samples are used."),
        ({"threads_per_rank": 4, "loader_workers": 2}, "computes with 4 CPU threads and has 2 loader processes."),
    ],
)
def test_a_setting_is_said(changes: dict[str, Any], sentence: str) -> None:
    assert sentence in said(a_study([measured(a_trial(**changes))]))["Workload"]


def test_a_batch_that_is_searched_for_is_said_to_be() -> None:
    trial = a_trial(scaling="largest", headroom_percent=5.0, batch_size_per_device=None)
    text = said(a_study([(trial, None, None)]))["Workload"]
    assert (
        "for each cell the largest that fits into the device's memory, found by doubling and bisection, less 5 %"
        in text
    )


def test_warm_up_and_the_way_of_timing_are_said() -> None:
    text = said(a_study(FEW))["Measurement"]
    assert "Of the 3 epochs of a launch the first epoch is warm-up and in no result; 2 epochs are timed." in text
    assert "Speed-up is throughput over that of one device, all else equal (single/spawn/1x1);" in text
    assert "Utilisation is the CPU time of the ranks over ranks x threads x time" in text
    assert "sampled ranks and devices of every node every 0.5 s" in text


def test_few_launches_are_called_a_range_and_cite_no_interval() -> None:
    text = said(a_study(FEW))
    assert "With fewer than six launches they are no interval: range of 3." in text["Statistics"]
    assert "95 % interval by order statistics" not in text["Statistics"]
    assert "Conover" not in text["Sources of the methods"]


def test_a_ratio_of_cells_launched_differently_often_has_a_range_of_its_own() -> None:
    text = said(a_study([*repeats(SINGLE, [4.0, 4.2, 4.4]), measured(DDP)]))["Statistics"]
    assert "they are no interval: range of 3 and one value. Nor are those of ratios" in text
    assert "the range of all quotients: range of 1 and 3." in text


def test_many_launches_have_intervals_with_their_sources() -> None:
    text = said(a_study(MANY))
    assert "nonparametric 95 % interval by order statistics" in text["Statistics"]
    assert "percentile bootstrap's of the ratio of medians (1,000 resamples)" in text["Statistics"]
    assert "Conover" in text["Sources of the methods"]
    assert "Efron" in text["Sources of the methods"]


def test_pairs_are_tested_and_the_verdicts_counted() -> None:
    slow = a_trial(strategy="slow", base="ddp")
    text = said(
        a_study([*repeats(DDP, [2 + i / 100 for i in range(6)]), *repeats(slow, [4 + i / 50 for i in range(6)])])
    )
    assert "adjusted by Holm's method for the one pair" in text["Statistics"]
    assert "Verdicts: slower 1." in text["Statistics"]
    assert "Holm" in text["Sources of the methods"]


def test_pairs_with_too_few_launches_are_counted_and_no_test_is_claimed() -> None:
    slow = a_trial(strategy="slow", base="ddp")
    text = said(a_study([*repeats(DDP, [2.0]), *repeats(slow, [4.0])]))
    assert "no pair on one topology has enough launches for a test. Verdicts: too few repeats 1." in text["Statistics"]
    assert "Holm" not in text["Statistics"] + text["Sources of the methods"]


def test_the_placebo_gives_the_noise_floor() -> None:
    text = said(a_study([*FEW, *repeats(replace(DDP, strategy=PLACEBO), [2.6, 2.4, 3.0])]))
    assert "The placebo measures ddp on 1x2 once more" in text["Design"]
    assert "may differ by up to 50 % from itself" in text["Statistics"]


def test_every_cell_without_a_number_is_listed_with_its_reason() -> None:
    lost = a_trial(strategy="data_parallel", devices_per_node=2)
    study = a_study(
        [*FEW, (lost, an_unavailable_record(lost, "needs CUDA devices"), None), (a_trial(nodes=2), None, None)]
    )
    text = said(study)["What was not measured, and why"]
    assert "data_parallel/spawn/1x2 unavailable: needs CUDA devices" in text
    assert "ddp/spawn/2x2 missing: not measured yet" in text
    assert "The experiment did not ask for causes of a step's time (explain), collectives alone" in text


def test_a_cell_with_fewer_launches_than_planned_says_so() -> None:
    study = a_study([*FEW, (replace(DDP, repeat=3), None, None)])
    assert "ddp/spawn/1x2 1 of 4 repeats missing" in said(study)["What was not measured, and why"]


def test_where_nothing_was_measured_only_the_plan_is_told() -> None:
    text = said(a_study([(DDP, None, None)]))
    assert "of which 0 were measured" in text["Design"]
    assert "Machine" not in text
    assert "Statistics" not in text


def test_interruptions_are_excluded_in_words() -> None:
    _, record, steps = measured(DDP)
    assert record is not None
    attempts = record.launch["attempts"]
    cut = replace(record, launch={**record.launch, "attempts": attempts * 2})
    text = said(a_study([(DDP, cut, steps)]))["What was excluded, and why"]
    began_anew = (
        "1 launch took more than one attempt after an interruption, and began anew: nothing of an earlier attempt"
    )
    assert began_anew in text
    assert DDP.id in text
    assert "checkpoint:" not in text


def test_only_what_its_ranks_say_went_on_from_a_checkpoint_is_said_to_have() -> None:
    _, record, steps = measured(DDP)
    assert record is not None
    attempts = record.launch["attempts"]
    why = "resumed: part of the training was in an earlier attempt"
    assert f'"{why}"' in (SCRIPTS / "train.py").read_text()
    resumed = replace(record, launch={**record.launch, "attempts": attempts * 2}, monitor_absent=[{"rank": why}])
    text = said(a_study([(DDP, resumed, steps)]))["What was excluded, and why"]
    assert "and went on from a checkpoint: the epoch that was cut counts as warm-up" in text
    assert "began anew" not in text


def test_one_launch_of_one_cell_is_said_in_the_singular() -> None:
    text = said(a_study([measured(DDP)]))
    assert (
        "1 cell of strategy, launcher and topology is launched once: 1 launch, of which 1 was measured."
        in text["Design"]
    )
    assert "then all again" not in text["Measurement"]


def at_minutes(found: Measured, begin: int, end: int, node: str = "laptop") -> Record:
    """The record of a launch that ran then, on that node."""
    record = found[1]
    assert record is not None
    launch = {**record.launch, "started_at": f"2026-01-01T00:{begin:02}:00+00:00"}
    launch["ended_at"] = f"2026-01-01T00:{end:02}:00+00:00"
    return replace(record, launch=launch, environment={**MACHINE, "node": node})


@pytest.mark.parametrize(
    ("spans", "sentence"),
    [
        ([(0, 1), (1, 2), (5, 6)], "no two of those that were measured ran at a time."),
        ([(0, 2, "a"), (1, 3, "b"), (2, 4, "a")], "up to 2 ran at a time, each on nodes of its own."),
        ([(0, 4, "a"), (1, 3, "b"), (2, 3, "a")], "up to 3 ran at a time, some of them on one node."),
    ],
)
def test_how_many_launches_ran_at_a_time_is_what_their_records_say(spans: list[Any], sentence: str) -> None:
    found = repeats(DDP, [2.0, 2.1, 2.2])
    records = [at_minutes(one, *span) for one, span in zip(found, spans, strict=True)]
    text = said(replace(a_study(found), records=records))["Measurement"]
    assert f"then all again in another; {sentence}" in text


def test_where_nothing_was_measured_nothing_is_said_of_how_many_ran_at_a_time() -> None:
    assert "at a time" not in said(a_study([(DDP, None, None)]))["Measurement"]


def test_only_what_was_explained_is_said_to_be() -> None:
    plain = a_trial(strategy="plain", base="ddp")
    text = said(a_study([explained_record(a_trial(explain=True)), measured(plain)], explain=True))["Measurement"]
    assert "After each training of ddp the same launch went on with blocks of steps under controls" in text


def test_collectives_that_were_asked_for_and_not_timed_are_not_said_to_be() -> None:
    study = a_study(FEW, collectives={"operations": ["all_reduce", "broadcast"], "dtypes": ["float32"]})
    assert "Collectives" not in said(study)["Measurement"]
    found = {"all_reduce": "ok", "broadcast": "missing"}
    rows = [{"operation": name, "dtype": "float32", "status": status} for name, status in found.items()]
    text = said(replace(study, tables={**study.tables, "collectives": frame("collectives", rows)}))["Measurement"]
    assert "Collectives were timed alone (all_reduce; float32;" in text


def predicted(study: Study, *entries: Entry, launches: Sequence[Launch] = ()) -> str:
    """What is said of how it was measured, with these in the ledger."""
    table = make_predictions("quickstart", Ledger(entries, launches))
    return said(replace(study, tables={**study.tables, "prediction": table}))["Measurement"]


def test_what_was_predicted_is_said_to_be_written_in_advance_only_where_it_was() -> None:
    study = a_study(FEW, explain=True, prediction={"calibrate_up_to": 1}, collectives={"operations": ["all_reduce"]})
    assert "predicted" not in said(study)["Measurement"]
    four = an_entry()
    (launch,) = launches_of(make_tables([measured(a_trial(devices_per_node=4))])["timings"])
    assert four.calibrated_up_to == 2
    told = "Epoch times on more devices were predicted from launches on at most 2; the exchange was calibrated from collectives."
    ahead = predicted(study, four, launches=[launch])
    assert told in ahead
    assert (
        "Written down before the launches that they are held against began: the predictions of ddp/spawn/1x4." in ahead
    )
    after = predicted(study, an_entry(predicted_at="2026-06-01T00:00:00+00:00"), launches=[launch])
    assert (
        "Written down after these had begun, and so a check of the model and no prediction: those of ddp/spawn/1x4."
        in after
    )
    assert "Written down before" not in after
    untested = predicted(study, four)
    assert "Held against no launch: those of ddp/spawn/1x4." in untested
    assert "Written down" not in untested
    assert "predicted" not in predicted(study, an_entry(devices_per_node=2))


def test_trials_of_other_batches_that_a_prediction_needs_are_said() -> None:
    sweep = a_trial(strategy="ddp_batch_64", base="ddp", devices_per_node=1, batch_size_per_device=64)
    more = [(sweep, measured(sweep)[1]), (replace(sweep, repeat=1), None)]
    text = said(replace(a_study(FEW), for_prediction=more))["Design"]
    assert (
        "For the prediction alone, one device is given other batches per step, which are in no table: "
        "ddp_batch_64 with 64 samples; 2 launches, of which 1 was measured." in text
    )
    assert "For the prediction" not in said(a_study(FEW))["Design"]


def test_the_placebos_verdict_is_not_among_those_of_the_pairs() -> None:
    slow = a_trial(strategy="slow", base="ddp")
    found = [
        *repeats(DDP, [2 + i / 100 for i in range(6)]),
        *repeats(slow, [4 + i / 50 for i in range(6)]),
        *repeats(replace(DDP, strategy=PLACEBO), [2.005, 2.5]),
    ]
    text = said(a_study(found))["Statistics"]
    assert "for all 1" not in text
    assert (
        "Verdicts: slower 1. The placebo and ddp stand apart from these, without that adjustment: too few repeats"
        in text
    )


def test_the_page_is_whole_and_keeps_every_sign() -> None:
    sections = [Section("A & B", [["1 < 2.", "So."], []], [Table(("what",), [("<script>alert(1)</script>",)])])]
    html = page("quick", sections)
    assert "<script" not in html
    assert "<p>1 &lt; 2. So.</p>" in html
    parser = HTMLParser()
    parser.feed(html)
    assert html == page("quick", sections)


def test_words_are_listed_and_counted_as_people_do() -> None:
    assert [listed([]), listed([1]), listed([1, 2]), listed("abc")] == ["", "1", "1 and 2", "a, b and c"]
    assert [counted(1, "launch", "launches"), counted(2, "launch", "launches"), counted(1797, "sample")] == [
        "1 launch",
        "2 launches",
        "1,797 samples",
    ]


def test_the_summary_may_hold_no_number_at_all() -> None:
    study = a_study(FEW)
    study.tables["summary"]["noise_floor_percent"] = np.nan
    assert "Statistics" in said(study)
