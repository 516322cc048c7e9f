"""A trial is everything that decides one measurement; its command line says all of it."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import PurePosixPath
from typing import Any, get_type_hints

import pytest
from factories import a_trial
from hypothesis import given
from hypothesis import strategies as st

from dpscale.launched import Options, Topology
from dpscale.trial import Trial

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)
OF_TYPE: dict[Any, st.SearchStrategy] = {
    str: st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    int: st.integers(),
    int | None: st.one_of(st.none(), st.integers()),
    float: st.floats(allow_nan=False),
    float | None: st.one_of(st.none(), st.floats(allow_nan=False)),
    bool: st.booleans(),
    Options: st.dictionaries(st.text(max_size=5), JSON, max_size=3),
}
TRIALS = st.builds(Trial, **{name: OF_TYPE[hint] for name, hint in get_type_hints(Trial).items()})


def parsed(argv: list[str]) -> Trial:
    parser = argparse.ArgumentParser()
    Trial.add_arguments(parser)
    return Trial.from_args(parser.parse_args(argv))


@given(TRIALS)
def test_a_trial_comes_back_from_its_command_line(trial):
    assert parsed(trial.to_args()) == trial


@pytest.mark.parametrize("field", dataclasses.fields(Trial), ids=lambda field: field.name)
def test_no_field_has_a_default_that_a_command_line_could_forget(field):
    assert field.default is dataclasses.MISSING
    assert field.default_factory is dataclasses.MISSING


def test_what_is_none_is_left_out_of_the_command_line():
    assert not [argument for argument in a_trial(train_samples=None).to_args() if "train-samples" in argument]


@pytest.mark.parametrize(
    "changes",
    [
        {"repeat": 3, "seed": 7, "timeout_s": 1.0, "collective_timeout_s": 1.0, "checkpoint_interval_s": None},
        {"strategy": "larger", "base": "ddp", "explain": True},
        {"launcher": "torchrun", "nodes": 2, "devices_per_node": 8},
    ],
    ids=["repeats and limits", "variants trained alike", "topologies"],
)
def test_one_training_has_one_configuration_wherever_and_however_often_it_runs(changes):
    assert a_trial(**changes).configuration == a_trial().configuration


OF_NO_CONFIGURATION = {"strategy", "repeat", "seed", "explain", "launcher", "nodes", "devices_per_node", "world_size"}


@pytest.mark.parametrize(
    "name", [f.name for f in dataclasses.fields(Trial) if f.compare and f.name not in OF_NO_CONFIGURATION]
)
def test_whatever_else_decides_a_trial_is_of_its_configuration(name):
    other = 7 if isinstance(getattr(a_trial(), name), int | float | None) else {"other": 1}
    assert a_trial(**{name: other}).configuration != a_trial().configuration


def test_under_strong_scaling_the_global_batch_is_of_the_configuration():
    pair, four = (
        a_trial(scaling="strong", devices_per_node=devices, batch_size_per_device=32 // devices) for devices in (2, 4)
    )
    assert pair.configuration == four.configuration
    assert pair.configuration != a_trial(scaling="strong", devices_per_node=2, batch_size_per_device=32).configuration


def test_the_same_options_make_the_same_command_line_in_any_order():
    assert a_trial(options={"x": 1, "y": 2}).to_args() == a_trial(options={"y": 2, "x": 1}).to_args()


def test_an_id_and_a_folder_name_experiment_strategy_launcher_topology_and_repeat():
    trial = a_trial(experiment="quick", strategy="mine", launcher="torchrun", nodes=2, devices_per_node=4, repeat=7)
    assert trial.cell == "mine/torchrun/2x4"
    assert trial.id == "quick/mine/torchrun/2x4/r7"
    assert trial.folder == PurePosixPath("quick/trials/mine/torchrun/2x4/r7")


def test_ranks_are_spread_evenly_over_nodes():
    trial = a_trial(nodes=2, devices_per_node=4)
    assert (trial.devices, trial.world_size, trial.ranks_per_node) == (8, 8, 4)
    assert (trial.global_batch_size, trial.batch_size_per_rank) == (256, 32)


def test_one_process_feeds_all_devices_of_nn_dataparallel():
    trial = a_trial(strategy="data_parallel", devices_per_node=4)
    assert (trial.devices, trial.world_size, trial.global_batch_size, trial.batch_size_per_rank) == (4, 1, 128, 128)


def test_a_trial_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        a_trial().seed = 1


@pytest.mark.parametrize(
    ("text", "nodes", "devices_per_node", "devices"), [("1x1", 1, 1, 1), ("2x4", 2, 4, 8), ("16x8", 16, 8, 128)]
)
def test_a_topology_is_nodes_times_devices_per_node(text, nodes, devices_per_node, devices):
    topology = Topology.parse(text)
    assert (topology.nodes, topology.devices_per_node, topology.devices) == (nodes, devices_per_node, devices)
    assert str(topology) == text


@pytest.mark.parametrize(
    "text", ["", "1", "x", "1x", "x1", "0x1", "1x0", "-1x2", "1X2", "1 x 2", "01x1", "1x2\n", "1x٣"]
)
def test_anything_else_is_no_topology(text):
    with pytest.raises(ValueError, match="is no topology; write nodes x devices_per_node, such as 1x1 or 2x4"):
        Topology.parse(text)


def test_topologies_are_ordered_by_nodes_then_by_devices():
    texts = ["2x1", "1x10", "1x2"]
    assert [str(topology) for topology in sorted(map(Topology.parse, texts))] == ["1x2", "1x10", "2x1"]


@pytest.mark.parametrize("limit", ["timeout_s", "collective_timeout_s", "checkpoint_interval_s"])
def test_a_limit_decides_nothing_of_a_record(limit):
    raised = dataclasses.replace(a_trial(), **{limit: 9999.0})
    assert raised == a_trial()
    assert raised.deciding_args() == a_trial().deciding_args()
    assert raised.limit_args() != a_trial().limit_args()
