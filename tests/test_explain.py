"""Explained trials: the training is as without, and what is injected is found under its own cause and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
MOST_LAUNCHES = 3
CAUSES = ("wrapper_s", "contention_s", "stretch_s", "transfer_s", "waiting_s", "data_wait_s")


def tables_of(*done: Trained) -> dict[str, Any]:
    """Of the repeats of one trial."""
    measured: list[Measured] = [
        (one.record.trial, one.record, {name: one.steps[name].to_numpy() for name in one.steps.column_names})
        for one in done
    ]
    return {"causes": pd.DataFrame(causes_of_cells(measured)), "stragglers": pd.DataFrame(stragglers(measured))}


@dataclass
class Repeats:
    """An explained trial, launched as often as is asked for."""

    trial: Trial
    data: Path
    folder: Path
    inject: str
    rank: int | str = "all"
    done: list[Trained] = field(default_factory=list)

    def launch(self) -> Trained:
        number = len(self.done)
        trial = replace(self.trial, repeat=number)
        folder = self.folder / f"r{number}"
        self.done.append(trained(trial, self.data, folder, inject=self.inject, rank=self.rank))
        return self.done[-1]

    @property
    def cell(self) -> Any:
        return tables_of(*self.done)["causes"].iloc[0]

    @property
    def ranks(self) -> pd.DataFrame:
        return tables_of(*self.done)["stragglers"]


@pytest.fixture(scope="module")
def repeats(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Repeats:
    """Of the trial as it is."""
    return Repeats(TRIAL, data, tmp_path_factory.mktemp("plain"), "keep_weights")


@pytest.fixture(scope="module")
def plain(repeats: Repeats) -> Trained:
    return repeats.done[0] if repeats.done else repeats.launch()


def half_width(row: Any, name: str) -> float:
    return float(row[f"{name}_high"] - row[f"{name}_low"]) / 2


def noise_s(name: str, *rows: Any) -> float:
    """Three half-widths of the intervals of all rows."""
    return 3 * sum(half_width(row, name) for row in rows)


def allowed_s(noise_s: float, expected_s: float, injected_s: float) -> float:
    """An error of 10 %, of what intervals leave open, or of what a core that has slept takes longer; at most half of what is
    injected, so that what is not found, or found under another cause, fails whatever the intervals are."""
    return min(max(0.1 * expected_s, noise_s, COLD_CORE_S), injected_s / 2)


def launched(changed: Repeats, usual: Repeats | None, injected_s: Mapping[str, float]) -> tuple[Any, Any]:
    """(its row, the usual one), launched again until the intervals of these causes can tell half of what is injected, at most
    MOST_LAUNCHES times."""
    several = [one for one in (changed, usual) if one is not None]
    for number in range(1, MOST_LAUNCHES + 1):
        for one in several:
            while len(one.done) < number:
                one.launch()
        rows = [one.cell for one in several]
        if all(noise_s(name, *rows) <= known_s / 2 for name, known_s in injected_s.items()):
            break
    return rows[0], rows[-1]


def grew_by(row: Any, usual: Any, name: str, expected_s: float, injected_s: float | None = None) -> bool:
    """Within what is allowed; what is injected, if it is not what is expected here, is what the error is held against."""
    allowed = allowed_s(noise_s(name, row, usual), expected_s, expected_s if injected_s is None else injected_s)
    return bool(abs(row[name] - usual[name] - expected_s) <= allowed)


def told(row: Any, usual: Any, name: str) -> str:
    """For whoever reads why a test failed."""
    noise = noise_s(name, row, usual)
    return f"{name} from {usual[name]:.4f} to {row[name]:.4f} s, three half-widths {noise:.4f} s"


def touched(row: Any, usual: Any, injected_s: float, *but: str) -> list[str]:
    """Causes that changed, though what is injected is no matter of theirs."""
    others = [name for name in CAUSES if name not in but]
    return [told(row, usual, name) for name in others if not grew_by(row, usual, name, 0.0, injected_s)]


# What is held to be found


def a_row(value_s: float, half_width_s: float = 0.0005, name: str = "waiting_s") -> dict[str, float]:
    return {name: value_s, f"{name}_low": value_s - half_width_s, f"{name}_high": value_s + half_width_s}


def test_what_grew_by_what_is_injected_is_found_and_nothing_else_is() -> None:
    for grown_s, found in {0.020: True, 0.022: True, 0.017: True, 0.0: False, 0.010: False, 0.024: False}.items():
        assert grew_by(a_row(0.005 + grown_s), a_row(0.005), "waiting_s", 0.02) == found


def test_wide_intervals_prove_nothing() -> None:
    """Half of what is injected is the largest error, whatever they are."""
    usual = a_row(0.005, 1.0)
    for grown_s, found in {0.011: True, 0.029: True, 0.0: False, 0.009: False, 0.031: False}.items():
        assert grew_by(a_row(0.005 + grown_s, 1.0), usual, "waiting_s", 0.02) == found


def test_a_cause_that_took_half_of_what_is_anothers_is_not_untouched() -> None:
    assert grew_by(a_row(0.0055), a_row(0.005), "waiting_s", 0.0, 0.02)
    assert not grew_by(a_row(0.0151, 1.0), a_row(0.005, 1.0), "waiting_s", 0.0, 0.02)


@pytest.mark.parametrize(("half_widths_s", "launches"), [([0.001], 1), ([1.0, 0.001], 2), ([1.0] * 9, MOST_LAUNCHES)])
def test_it_is_launched_again_while_intervals_are_wide_and_not_for_ever(
    half_widths_s: list[float], launches: int
) -> None:
    class MadeUp(Repeats):
        def launch(self) -> Trained:
            self.done.append(Trained(self.folder))
            return self.done[-1]

        @property
        def cell(self) -> Any:
            return a_row(0.0, half_widths_s[len(self.done) - 1])

    changed, usual = (MadeUp(TRIAL, Path(), Path(), "") for _ in range(2))
    launched(changed, usual, {"waiting_s": 0.02})
    assert (len(changed.done), len(usual.done)) == (launches, launches)


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
def test_a_slow_loader_is_data_wait_and_a_slow_end_of_an_epoch_is_apart(
    repeats: Repeats, data: Path, tmp_path: Path
) -> None:
    found = {
        "data_wait_s": SLEPT_PER_BATCH_S,
        "loader_effect_s": SLEPT_PER_BATCH_S,
        "loader_end_s": SLEPT_PER_EPOCH_S,
    }
    others = dict.fromkeys(CAUSES, SLEPT_PER_BATCH_S)
    row, usual = launched(Repeats(TRIAL, data, tmp_path, "slow_loader,slow_epoch_end"), repeats, others | found)
    for name, slept_s in found.items():
        assert grew_by(row, usual, name, slept_s), told(row, usual, name)
    assert not touched(row, usual, SLEPT_PER_BATCH_S, "data_wait_s")


@pytest.mark.alone
def test_a_slow_rank_is_named_and_makes_the_others_wait(repeats: Repeats, data: Path, tmp_path: Path) -> None:
    mean_s = SLEPT_PER_BACKWARD_S / 2  # of both ranks
    slow = Repeats(TRIAL, data, tmp_path, "slow_rank", rank=1)
    row, usual = launched(slow, repeats, dict.fromkeys((*CAUSES, "compute_s"), mean_s))
    culprit = slow.ranks[slow.ranks["rank"] == 1].iloc[0]
    assert culprit.rounds_last == culprit.rounds == ROUNDS * len(slow.done)
    allowed = allowed_s(noise_s("local_delay_s", culprit), SLEPT_PER_BACKWARD_S, SLEPT_PER_BACKWARD_S)
    assert culprit.local_delay_s == pytest.approx(SLEPT_PER_BACKWARD_S, abs=allowed)
    assert 0 < culprit.step_cost_s < 1.5 * SLEPT_PER_BACKWARD_S
    for name in ("compute_s", "waiting_s"):
        assert grew_by(row, usual, name, mean_s), told(row, usual, name)
    assert not touched(row, usual, mean_s, "waiting_s")


@pytest.mark.alone
def test_a_slow_exchange_is_stretch_and_transfer(repeats: Repeats, data: Path, tmp_path: Path) -> None:
    slow = Repeats(TRIAL, data, tmp_path, "slow_hook")
    row, usual = launched(slow, repeats, dict.fromkeys(CAUSES, SLEPT_PER_BUCKET_S))
    # the hooks of all buckets but the last hold up the rest of backward, that of the last is all of its tail
    for name, slept_s in {"stretch_s": SLEPT_PER_BUCKET_S * (BUCKETS - 1), "transfer_s": SLEPT_PER_BUCKET_S}.items():
        assert grew_by(row, usual, name, slept_s), told(row, usual, name)
    assert not touched(row, usual, SLEPT_PER_BUCKET_S, "stretch_s", "transfer_s")


@pytest.mark.alone
def test_two_ranks_on_one_core_are_contention(data: Path, tmp_path: Path) -> None:
    trial = replace(LARGER, batch_size_per_device=32, train_samples=640)  # longer than the kernel's time slices
    one_core = Repeats(trial, data, tmp_path, "one_core")
    one_core.launch()
    first = one_core.cell
    row, _ = launched(one_core, None, {"contention_s": first.compute_s + first.wrapper_s})
    alone_s = row.compute_s + row.wrapper_s  # each takes as long again, while the other has the core
    allowed = allowed_s(noise_s("contention_s", row), alone_s, alone_s)
    assert row.contention_s == pytest.approx(alone_s, abs=allowed)
