"""Every row of STRATEGIES learns what one process learns from the same samples: two ranks, ten steps of SGD.

The learning rate rises over three steps and falls over seven: a row whose optimiser does not follow learns something else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import NEEDED_OPTIONS
from launching import SGD, Trained, measured, small_trial, starts_here, trained

from dpscale import strategies
from dpscale.launching.launchers import LAUNCHERS
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import Accumulation
from dpscale.trial import Trial

BATCH = 16  # per rank; one process takes twice that
SCHEDULE = {"kind": "cosine", "warmup_epochs": 0.15, "milestones": None, "gamma": None}  # an epoch has 20 steps
STEPS = {"steps": 10, "warmup_steps": 0, "evaluate": False, "optimizer": {**SGD, "schedule": SCHEDULE}}
FP32 = 1e-5
OUTSIDE_SLURM = [launcher for launcher in LAUNCHERS if launcher != "srun" and starts_here(launcher)]


@dataclass(frozen=True)
class Variant:
    """A row with options, and how far its weights may be from one process's, relative to the largest weight."""

    base: str
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = FP32
    precision: str = "fp32"

    @property
    def name(self) -> str:
        values = [f"{name}-{value}" for name, value in self.options.items()]
        return "-".join([self.base, *values, *([self.precision] if self.precision != "fp32" else [])])

    @property
    def all_options(self) -> dict[str, Any]:
        """With those that the row can't do without."""
        return {**NEEDED_OPTIONS.get(self.base, {}), **self.options}


def launchers_of(base: str) -> list[str]:
    return [name for name in OUTSIDE_SLURM if name in (STRATEGIES[base].launchers or OUTSIDE_SLURM)]


def runs_here(base: str) -> bool:
    return bool(launchers_of(base)) and STRATEGIES[base].needs(small_trial(base)) is None


# Without an entry here a row is tried as it comes, to FP32.
OPTIONS = [
    Variant("local_sgd", {"period": 1}),
    Variant("ddp", {"bucket_cap_MiB": 0.1, "gradient_as_bucket_view": True, "find_unused_parameters": True}),
    Variant("ddp", {"static_graph": True}),
    Variant("ddp", {"comm_hook": "fp16"}, 5e-4),  # gradients are rounded to 11 bits
    Variant("ddp", {"comm_hook": "bf16"}, 4e-3),  # to 8 bits
    Variant("ddp", {"comm_hook": "powersgd", "powersgd_rank": 4}, 5e-2),  # to rank 4, the rest made up for later
    Variant("ddp", precision="bf16", tolerance=1e-2),  # activations and their gradients are rounded to 8 bits
    Variant("fsdp", {"reshard_after_forward": False}),
    Variant("fsdp", precision="bf16", tolerance=2e-2),  # weights too, for compute
    Variant("zero", {"parameters_as_bucket_view": True}),
    Variant("deepspeed", {"stage": 0}),
    Variant("deepspeed", {"stage": 1, "reduce_bucket_size": 10_000}),
    Variant("deepspeed", {"stage": 3, "overlap_comm": False}),
    Variant("deepspeed", {"stage": 3}, precision="bf16", tolerance=2e-2),  # weights are rounded to 8 bits
]
MEANT_TO_DIFFER = {"independent", "local_sgd"}  # the latter unless its period is 1


DISTRIBUTED = [
    base for base, row in STRATEGIES.items() if row.max_devices is None and not row.single_process and runs_here(base)
]
AS_THEY_COME = [Variant(base) for base in DISTRIBUTED if base not in MEANT_TO_DIFFER]


def weights(done: Trained, rank: int = 0) -> np.ndarray:
    return np.concatenate([np.asarray(parameter) for parameter in done.found("weights")[rank]])


def trial_of(variant: Variant, **changes: Any) -> Trial:
    return small_trial(
        variant.base,
        options=variant.all_options,
        precision=variant.precision,
        **{"batch_size_per_device": BATCH, **STEPS, **changes},
    )


def train(variant: Variant, data: Path, folder: Path, **changes: Any) -> Trained:
    return trained(trial_of(variant, **changes), data, folder, inject="keep_weights")


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


ONE = {"devices": 1, "batch_size_per_device": 2 * BATCH}


@pytest.fixture(scope="module")
def by_one_process(data: Path, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    untrained = {**SGD, "lr": 1e-12}
    before = weights(train(Variant("single"), data, tmp_path_factory.mktemp("untrained"), optimizer=untrained, **ONE))
    learned = weights(train(Variant("single"), data, tmp_path_factory.mktemp("one"), **ONE))
    assert distance(before, learned) > 0.02  # else agreeing with it would show nothing
    return learned


def is_right(done: Trained, variant: Variant, expected: np.ndarray) -> None:
    assert distance(weights(done), expected) <= variant.tolerance
    assert done.record.weights_max_difference <= STRATEGIES[variant.base].weights_rtol


@pytest.mark.parametrize(
    ("variant", "launcher"),
    [
        pytest.param(variant, launcher, id=f"{variant.name}-{launcher}")
        for variant in AS_THEY_COME
        for launcher in launchers_of(variant.base)
    ],
)
def test_two_ranks_end_with_the_weights_of_one_process_under_every_launcher(
    variant: Variant, launcher: str, by_one_process: np.ndarray, data: Path, tmp_path: Path
):
    done = measured(trial_of(variant, launcher=launcher), data, tmp_path, inject="keep_weights")
    is_right(done, variant, by_one_process)


@pytest.mark.parametrize(
    "variant", [variant for variant in OPTIONS if runs_here(variant.base)], ids=lambda variant: variant.name
)
def test_options_of_a_row_change_nothing_of_what_it_learns(
    variant: Variant, by_one_process: np.ndarray, data: Path, tmp_path: Path
):
    is_right(train(variant, data, tmp_path), variant, by_one_process)


@pytest.fixture(scope="module")
def by_one_process_in_four_parts(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(Variant("single", {"accumulation_steps": 4}), data, tmp_path_factory.mktemp("four"), **ONE)


ACCUMULATING = [base for base in DISTRIBUTED if issubclass(STRATEGIES[base].options, Accumulation)]


@pytest.mark.parametrize(
    "variant",
    [
        *[Variant(base, {"accumulation_steps": 2}) for base in ACCUMULATING if base not in MEANT_TO_DIFFER],
        Variant("local_sgd", {"accumulation_steps": 2, "period": 1}),
        Variant("ddp", {"accumulation_steps": 2, "static_graph": True}),
        *[Variant("deepspeed", {"accumulation_steps": 2, "stage": 3})] * runs_here("deepspeed"),
    ],
    ids=lambda variant: variant.name,
)
def test_two_ranks_in_two_parts_end_with_the_weights_of_one_process_in_four(
    variant: Variant, by_one_process_in_four_parts: Trained, data: Path, tmp_path: Path
):
    done = train(variant, data, tmp_path)
    assert distance(weights(done), weights(by_one_process_in_four_parts)) <= FP32
    np.testing.assert_allclose(mean_losses(done), mean_losses(by_one_process_in_four_parts), atol=1e-5)


def mean_losses(done: Trained) -> np.ndarray:
    return done.steps.to_pandas().groupby("step")["loss"].mean().to_numpy()


def test_parts_of_a_batch_are_the_batch(by_one_process: np.ndarray, by_one_process_in_four_parts: Trained):
    assert distance(weights(by_one_process_in_four_parts), by_one_process) <= FP32


def test_local_ranks_learn_apart_and_agree_at_the_end(by_one_process: np.ndarray, data: Path, tmp_path: Path):
    done = train(Variant("local_sgd", {"period": 4}), data, tmp_path)
    np.testing.assert_array_equal(weights(done, 0), weights(done, 1))
    assert done.record.weights_max_difference == 0
    assert FP32 < distance(weights(done), by_one_process) < 0.1  # not the same as step by step, and not far from it


def test_zero_and_fsdp_learn_what_ddp_learns_under_adam_too(data: Path, tmp_path: Path):
    adam = {"name": "adam", "lr": 1e-3, "momentum": None, "weight_decay": 0.0}
    ddp, zero, fsdp = (
        weights(train(Variant(base), data, tmp_path / base, optimizer=adam)) for base in ("ddp", "zero", "fsdp")
    )
    assert distance(zero, ddp) <= FP32
    assert distance(fsdp, ddp) <= 1e-4  # Adam divides by gradients that are near zero: their last bits show


@pytest.mark.parametrize(
    "variant",
    [
        *[Variant(base) for base in DISTRIBUTED if base != "independent"],
        *[Variant("deepspeed", {"stage": 3})] * runs_here("deepspeed"),
    ],
    ids=lambda variant: variant.name,
)
def test_three_ranks_evaluate_every_test_sample_once(variant: Variant, data: Path, tmp_path: Path):
    """Of 103 samples in batches of 8, ranks have different numbers of batches: sharded ones must not wait for ever."""
    launcher = launchers_of(variant.base)[0]
    trial = small_trial(variant.base, 3, collective_timeout_s=30.0, launcher=launcher, options=variant.all_options)
    run = measured if STRATEGIES[variant.base].launchers else trained  # a row's own launcher cannot be done without
    evaluation = run(trial, data, tmp_path).record.timed_segments[0].evaluation
    assert evaluation.samples == 103
    assert evaluation.correct is not None


def test_without_deepspeed_its_row_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(strategies.deepspeed, "find_spec", lambda name: None)
    reason = STRATEGIES["deepspeed"].needs(small_trial("deepspeed"))
    assert reason == "needs DeepSpeed: not installed (make deepspeed)"


def test_a_ring_of_more_ranks_than_weights_adds_up():
    """Chunks may be empty: the ring on threads, with mailboxes for links."""
    torch = pytest.importorskip("torch")
    from dpscale.strategies import by_hand

    for size, length in ((2, 1), (3, 2), (5, 3), (4, 10)):
        vectors = [torch.arange(length, dtype=torch.float64) + 10**rank for rank in range(size)]
        expected = torch.stack(vectors).sum(dim=0)
        assert run_ring(by_hand, vectors) == [expected.tolist()] * size


def run_ring(by_hand: Any, vectors: list) -> list:
    """ring_all_reduce of each rank on a thread of its own; returns what each is left with."""
    import queue
    import threading

    size = len(vectors)
    links = [queue.Queue() for _ in range(size)]  # links[r] leads to rank r

    def pass_right(outgoing, incoming, rank, of):
        if len(outgoing):
            links[(rank + 1) % of].put(outgoing.clone())
        if len(incoming):
            incoming.copy_(links[rank].get(timeout=10))

    original, by_hand._pass_right = by_hand._pass_right, pass_right
    try:
        threads = [
            threading.Thread(target=by_hand.ring_all_reduce, args=(vector, rank, size))
            for rank, vector in enumerate(vectors)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
    finally:
        by_hand._pass_right = original
    return [vector.tolist() for vector in vectors]
