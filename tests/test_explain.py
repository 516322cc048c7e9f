"""Explained trials: the training is as without, and what is injected is found under its own cause and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from launching import Trained, small_trial, trained

from dpscale.explaining.explain import LEAST_ALONE, ROUNDS, STEPS
from dpscale.explaining.stamps import ALONE, CONTROLS, PLAIN
from dpscale.tables.causes import causes_of_cells, stragglers
from dpscale.tables.schema import Measured
from dpscale.trial import Trial

TRIAL = small_trial(
    model="mlp",  # its exchange takes next to no time: what is injected hides none of it
    model_options={},
    options={"bucket_cap_MiB": 0.001},
    steps=None,
    warmup_steps=None,
    epochs=3,
    warmup_epochs=1,
    train_samples=160,
    explain=True,
)
BUCKETS = 3  # of its three layers
LARGER = replace(TRIAL, model="convnet", model_options={"dropout": False}, options={})
SLEPT_PER_BATCH_S, SLEPT_PER_BACKWARD_S, SLEPT_PER_BUCKET_S, SLEPT_PER_EPOCH_S = 0.02, 0.02, 0.015, 0.1
COLD_CORE_S = 0.001
CAUSES = ("wrapper_s", "contention_s", "stretch_s", "transfer_s", "waiting_s", "data_wait_s")


def tables_of(done: Trained) -> dict[str, Any]:
    record, table = done.record, done.steps
    measured: list[Measured] = [(record.trial, record, {name: table[name].to_numpy() for name in table.column_names})]
    return {"causes": pd.DataFrame(causes_of_cells(measured)), "stragglers": pd.DataFrame(stragglers(measured))}


@pytest.fixture(scope="module")
def plain(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained(TRIAL, data, tmp_path_factory.mktemp("plain"), inject="keep_weights")


@pytest.fixture(scope="module")
def usual(plain: Trained) -> Any:
    return tables_of(plain)["causes"].iloc[0]


def injected(name: str, data: Path, folder: Path, trial: Trial = TRIAL, rank: int | str = "all") -> tuple[Any, Any]:
    """(the row of the cell, the rows of its ranks)."""
    tables = tables_of(trained(trial, data, folder, inject=name, rank=rank))
    return tables["causes"].iloc[0], tables["stragglers"]


def half_width(row: Any, name: str) -> float:
    return (row[f"{name}_high"] - row[f"{name}_low"]) / 2


def grew_by(row: Any, usual: Any, name: str, expected_s: float) -> bool:
    """Within 10 %, three half-widths of both intervals, or what a core that has slept takes longer."""
    allowed = max(0.1 * expected_s, 3 * (half_width(row, name) + half_width(usual, name)), COLD_CORE_S)
    return abs(row[name] - usual[name] - expected_s) <= allowed


def untouched(row: Any, usual: Any, *touched: str) -> dict[str, bool]:
    return {name: grew_by(row, usual, name, 0.0) for name in CAUSES if name not in touched}


# What an explained trial leaves


def test_every_rank_has_every_control_in_every_round(plain: Trained) -> None:
    explained = plain.record.explained
    assert explained is not None
    assert {(block.round, block.control, block.rank) for block in explained.blocks} == {
        (number, control, rank) for number in range(ROUNDS) for control in CONTROLS for rank in (0, 1)
    }
    for block in explained.blocks:
        assert len(block.stamps.update_s) >= (LEAST_ALONE if block.control in ALONE else STEPS)


def test_the_bytes_of_each_bucket_are_those_of_its_layers_gradients(plain: Trained) -> None:
    explained = plain.record.explained
    assert explained is not None
    last, middle, _ = explained.bucket_bytes  # backward begins with the last layer
    assert (last, middle) == (4 * 10 * (256 + 1), 4 * 256 * (256 + 1))


def test_rounds_are_in_different_orders_which_all_ranks_share(plain: Trained) -> None:
    explained = plain.record.explained
    assert explained is not None
    orders = {
        rank: [
            tuple(block.control for block in explained.blocks if (block.rank, block.round) == (rank, number))
            for number in range(ROUNDS)
        ]
        for rank in (0, 1)
    }
    assert orders[0] == orders[1]
    assert len(set(orders[0])) > 1


def test_the_stamps_of_a_step_are_in_the_order_of_a_step(plain: Trained) -> None:
    explained = plain.record.explained
    assert explained is not None
    for block in explained.blocks:
        stamps = block.stamps
        for step in range(len(stamps.start_s)):
            ready, exchanged = stamps.ready_s[step], stamps.exchanged_s[step]
            assert stamps.start_s[step] <= stamps.batch_s[step] <= stamps.forward_s[step] <= stamps.backward_s[step]
            assert stamps.backward_s[step] <= stamps.update_s[step]
            assert len(ready) == len(exchanged) == (0 if block.control == PLAIN else BUCKETS)
            assert all(stamps.forward_s[step] <= moment <= stamps.backward_s[step] for moment in ready)
            assert all(start <= end <= stamps.backward_s[step] for start, end in zip(ready, exchanged, strict=True))


def test_a_training_is_the_same_whether_it_explains_itself_or_not(plain: Trained, data: Path, tmp_path: Path) -> None:
    without = trained(replace(TRIAL, explain=False), data, tmp_path / "without", inject="keep_weights")
    assert without.record.explained is None
    assert plain.found("weights") == without.found("weights")
    assert plain.steps["loss"] == without.steps["loss"]
    evaluations = [[segment.evaluation for segment in done.record.segments] for done in (plain, without)]
    assert [item and item.correct for item in evaluations[0]] == [item and item.correct for item in evaluations[1]]


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"accumulation_steps": 2, "gradient_as_bucket_view": True, "comm_hook": "bf16"}},
        {"options": {"static_graph": True, "comm_hook": "powersgd", "accumulation_steps": 2}},
    ],
    ids=["bf16", "powersgd"],
)
def test_ddp_is_explained_with_any_options_and_its_buffers_apart(changes: Any, data: Path, tmp_path: Path) -> None:
    row = tables_of(trained(replace(LARGER, **changes), data, tmp_path, inject="batch_norm_model"))["causes"].iloc[0]
    assert row.rounds == ROUNDS
    assert row.buffers_s_low <= row.buffers_s <= row.buffers_s_high


# Truth by injection


@pytest.mark.alone
def test_a_slow_loader_is_data_wait_and_a_slow_end_of_an_epoch_is_apart(usual: Any, data: Path, tmp_path: Path) -> None:
    row, _ = injected("slow_loader,slow_epoch_end", data, tmp_path)
    assert grew_by(row, usual, "data_wait_s", SLEPT_PER_BATCH_S)
    assert grew_by(row, usual, "loader_effect_s", SLEPT_PER_BATCH_S)
    assert grew_by(row, usual, "loader_end_s", SLEPT_PER_EPOCH_S)
    assert all(untouched(row, usual, "data_wait_s").values()), untouched(row, usual, "data_wait_s")


@pytest.mark.alone
def test_a_slow_rank_is_named_and_makes_the_others_wait(usual: Any, data: Path, tmp_path: Path) -> None:
    row, ranks = injected("slow_rank", data, tmp_path, rank=1)
    culprit = ranks[ranks["rank"] == 1].iloc[0]
    assert culprit.rounds_last == culprit.rounds == ROUNDS
    assert culprit.local_delay_s == pytest.approx(
        SLEPT_PER_BACKWARD_S, abs=max(0.1 * SLEPT_PER_BACKWARD_S, 3 * half_width(culprit, "local_delay_s"))
    )
    assert 0 < culprit.step_cost_s < 1.5 * SLEPT_PER_BACKWARD_S
    assert grew_by(row, usual, "compute_s", SLEPT_PER_BACKWARD_S / 2)  # the mean of both ranks
    assert grew_by(row, usual, "waiting_s", SLEPT_PER_BACKWARD_S / 2)
    assert all(untouched(row, usual, "waiting_s").values()), untouched(row, usual, "waiting_s")


@pytest.mark.alone
def test_a_slow_exchange_is_stretch_and_transfer(usual: Any, data: Path, tmp_path: Path) -> None:
    row, _ = injected("slow_hook", data, tmp_path)
    # the hooks of all buckets but the last hold up the rest of backward, that of the last is all of its tail
    assert grew_by(row, usual, "stretch_s", SLEPT_PER_BUCKET_S * (BUCKETS - 1))
    assert grew_by(row, usual, "transfer_s", SLEPT_PER_BUCKET_S)
    assert all(untouched(row, usual, "stretch_s", "transfer_s").values()), untouched(row, usual, "stretch_s")


@pytest.mark.alone
def test_two_ranks_on_one_core_are_contention(data: Path, tmp_path: Path) -> None:
    trial = replace(LARGER, batch_size_per_device=32, train_samples=640)  # longer than the kernel's time slices
    row, _ = injected("one_core", data, tmp_path, trial)
    alone_s = row.compute_s + row.wrapper_s  # each takes as long again, while the other has the core
    assert row.contention_s == pytest.approx(alone_s, abs=max(0.1 * alone_s, 3 * half_width(row, "contention_s")))
