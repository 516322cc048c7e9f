"""Training is right before it is fast: N ranks learn what one rank learns, and what does not synchronise is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from launching import ADADELTA, SGD, TEST_SAMPLES, Trained, launch, measured, small_trial, trained, wait_until

from dpscale.errors import UserError
from dpscale.launching.launches import missing_program
from dpscale.record import Record
from dpscale.strategies import STRATEGIES
from dpscale.workloads.arrays import open_split

STEPS = {"steps": 10, "warmup_steps": 0, "evaluate": False}
GLOBAL_BATCH = 64


def loss_per_step(done: Trained) -> np.ndarray:
    """Mean over the global batch, of each step: ranks have equal shares of it."""
    steps = done.steps.to_pandas()
    return steps.groupby(["segment", "step"])["loss"].mean().to_numpy()


def weights(done: Trained, rank: int = 0) -> np.ndarray:
    return np.concatenate([np.asarray(parameter) for parameter in done.found("weights")[rank]])


@pytest.fixture(scope="module", params=[SGD, ADADELTA], ids=["sgd", "adadelta"])
def one_and_two_ranks(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory):
    """The same 64 samples per step on one rank, and as 2 x 32."""

    def train(strategy: str, devices: int) -> Trained:
        trial = small_trial(
            strategy, devices, batch_size_per_device=GLOBAL_BATCH // devices, optimizer=request.param, **STEPS
        )
        return trained(trial, data, tmp_path_factory.mktemp(strategy), inject="keep_weights")

    return train("single", 1), train("ddp", 2)


def test_two_ranks_have_the_losses_of_one(one_and_two_ranks: tuple[Trained, Trained]):
    one, two = map(loss_per_step, one_and_two_ranks)
    assert len(one) == 10
    assert one[-1] < one[0]
    np.testing.assert_allclose(two, one, atol=1e-4, rtol=0)


def test_two_ranks_end_with_the_weights_of_one(one_and_two_ranks: tuple[Trained, Trained]):
    one, two = map(weights, one_and_two_ranks)
    # Adadelta divides by means of gradients that may be near zero: their last bits show
    tolerance = 1e-5 if one_and_two_ranks[0].record.trial.optimizer["name"] == "sgd" else 5e-4
    np.testing.assert_allclose(two, one, rtol=0, atol=tolerance * np.abs(one).max())


def test_both_ranks_end_with_the_same_weights(one_and_two_ranks: tuple[Trained, Trained]):
    _, two = one_and_two_ranks
    assert two.record.weights_max_difference == 0
    np.testing.assert_array_equal(weights(two, 0), weights(two, 1))


@pytest.fixture(scope="module")
def with_dropout(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Trained]:
    trial = {"model_options": {"dropout": True}, "batch_size_per_device": 16, **STEPS}

    def train(seed: int) -> Trained:
        return trained(small_trial(seed=seed, **trial), data, tmp_path_factory.mktemp("seed"))

    return train


def test_the_same_trial_twice_has_the_same_losses_and_another_seed_has_others(with_dropout: Callable[[int], Trained]):
    first, again, other = (with_dropout(seed).steps.to_pandas()["loss"] for seed in (1, 1, 2))
    np.testing.assert_allclose(again, first, rtol=0, atol=1e-6)
    assert not np.allclose(other, first, atol=1e-3)


# The gate


def test_a_strategy_that_forgets_to_synchronise_is_refused(data: Path, tmp_path: Path):
    done = launch(small_trial(), data, tmp_path, inject="forgets_to_synchronise")
    assert done.returncode == 1
    assert "it does not average the gradients, so nothing is measured" in done.stderr
    assert done.leaves_nothing_behind()


def test_a_strategy_that_synchronises_at_first_only_is_refused(data: Path, tmp_path: Path):
    done = launch(small_trial("allreduce"), data, tmp_path, inject="forgets_to_synchronise_later")
    assert done.returncode == 1
    assert "ranks hold different weights after training" in done.stderr
    assert "'allreduce' does not synchronise" in done.stderr
    assert done.leaves_nothing_behind()


@pytest.mark.parametrize(("change", "times"), [("adds_instead_of_averaging", "2"), ("averages_twice", "0.5")])
def test_a_strategy_whose_steps_have_another_length_is_refused(change: str, times: str, data: Path, tmp_path: Path):
    """Its ranks agree with each other: only one process's step gives it away."""
    done = launch(small_trial("allreduce"), data, tmp_path, inject=change)
    assert done.returncode == 1
    assert f"a step of strategy 'allreduce' is {times} times that by the mean gradient of all ranks" in done.stderr
    assert done.leaves_nothing_behind()


@pytest.mark.parametrize("strategy", ["ddp", "allreduce"])
def test_batch_norm_that_drifts_apart_is_refused(strategy: str, data: Path, tmp_path: Path):
    done = launch(small_trial(strategy), data, tmp_path, inject="batch_norm_model,lets_buffers_drift")
    assert done.returncode == 1
    assert "ranks hold different buffers after training" in done.stderr
    assert f"strategy {strategy!r} lets them drift apart" in done.stderr
    assert done.leaves_nothing_behind()


def test_batch_norm_ends_as_one_model_even_where_nothing_exchanges_it_in_training(data: Path, tmp_path: Path):
    done = trained(small_trial("allreduce", evaluate=False), data, tmp_path, inject="batch_norm_model")
    assert done.record.status == "ok"
    first, second = done.found("trained")  # just before the end
    assert first != second


@pytest.mark.parametrize("rank", [0, 1])
def test_nan_in_the_weights_of_one_rank_is_refused(rank: int, data: Path, tmp_path: Path):
    done = launch(small_trial(evaluate=False), data, tmp_path, inject="nan_weights", rank=rank)
    assert done.returncode == 1
    assert "weights are not finite after training; lower workload.optimizer.lr" in done.stderr
    assert done.leaves_nothing_behind()


def test_nan_in_weights_that_nobody_compares_is_refused_too(data: Path, tmp_path: Path):
    done = launch(small_trial("single", 1, evaluate=False), data, tmp_path, inject="nan_weights")
    assert done.returncode == 1
    assert "weights are not finite" in done.stderr
    assert done.leaves_nothing_behind()


def test_a_diverged_loss_is_refused_with_a_remedy(data: Path, tmp_path: Path):
    done = launch(small_trial(optimizer={**SGD, "lr": 1e30}), data, tmp_path)
    assert done.returncode == 1
    assert "loss of step" in done.stderr
    assert "lower workload.optimizer.lr" in done.stderr
    assert done.leaves_nothing_behind()


# Evaluation


@pytest.fixture(scope="module")
def evaluations(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Record]:
    """World size -> record of a training with the same global batches."""
    runs = {}
    for ranks, strategy in ((1, "single"), (2, "ddp"), (3, "ddp")):
        trial = small_trial(strategy, ranks, batch_size_per_device=48 // ranks, epochs=2, warmup_epochs=1, steps=None)
        runs[ranks] = trained(trial, data, tmp_path_factory.mktemp(f"{ranks}-ranks")).record
    return runs


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_any_number_of_ranks_evaluates_every_test_sample_once(ranks: int, evaluations: dict[int, Record]):
    for segment, of_one in zip(evaluations[ranks].segments, evaluations[1].segments, strict=True):
        assert segment.evaluation.samples == TEST_SAMPLES
        assert segment.evaluation.correct == of_one.evaluation.correct
        assert segment.evaluation.correct_top5 == of_one.evaluation.correct_top5 >= segment.evaluation.correct
        assert segment.evaluation.loss == pytest.approx(of_one.evaluation.loss, abs=1e-6)


def test_the_model_learns_what_it_is_shown(evaluations: dict[int, Record]):
    assert evaluations[1].segments[-1].evaluation.correct > TEST_SAMPLES / 2


def test_batch_norm_is_evaluated_with_the_same_running_statistics_on_all_ranks(data: Path, tmp_path: Path):
    done = trained(small_trial(), data, tmp_path, inject="batch_norm_model")
    first, second = done.found("evaluated")
    assert any("running_mean" in name for name in first)
    assert first == second


def test_the_control_has_no_accuracy_and_exchanges_nothing(data: Path, tmp_path: Path):
    done = trained(small_trial("independent"), data, tmp_path, inject="keep_weights")
    evaluation = done.record.timed_segments[0].evaluation
    assert (evaluation.samples, evaluation.correct, evaluation.loss) == (TEST_SAMPLES, None, None)
    assert evaluation.correct_top5 is None
    assert done.record.weights_max_difference is None
    assert not np.allclose(weights(done, 0), weights(done, 1))


def test_the_control_does_not_exchange_batch_norm_buffers_either(data: Path, tmp_path: Path):
    done = trained(small_trial("independent", evaluate=False), data, tmp_path, inject="batch_norm_model")
    first, second = done.found("trained")
    assert first != second


# The table


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_row_leaves_a_record_or_says_why_not(strategy: str, data: Path, tmp_path: Path):
    row = STRATEGIES[strategy]
    launcher = (row.launchers or ("spawn",))[0]
    trial = small_trial(strategy, min(2, row.max_devices or 2), launcher=launcher)
    record = (measured if row.launchers else trained)(trial, data, tmp_path).record
    assert record.trial == trial
    if reason := missing_program(trial) or row.needs(trial):
        assert (record.status, record.reason) == ("unavailable", reason)
        assert (record.ranks, record.segments) == ([], [])
    else:
        assert record.status == "ok"
        assert [facts.rank for facts in record.ranks] == list(range(trial.world_size))
        assert all(step >= 0 for step in record.segments[0].samples)
        assert set(record.effective_precision.values()) <= {"float32", "none"}
        assert record.effective_precision.keys() >= {"weights", "compute", "optimizer_state"}  # gradients may be hidden


def test_bf16_computes_in_bfloat16_and_keeps_float32_weights(data: Path, tmp_path: Path):
    record = trained(small_trial(precision="bf16"), data, tmp_path).record
    seen = {"weights": "float32", "compute": "bfloat16", "gradients": "float32", "optimizer_state": "none"}
    assert record.effective_precision == seen


def test_a_backend_that_this_torch_was_not_built_with_is_unavailable(data: Path, tmp_path: Path):
    record = trained(small_trial(backend="mpi"), data, tmp_path).record
    assert record.status == "unavailable"
    assert record.reason == "needs a torch that was built with MPI: PyPI's is not"


# Data


@pytest.fixture
def own_data(data: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(data, tmp_path / "data"))


def test_a_cut_dataset_fails_the_trial_by_the_name_of_its_file(own_data: Path, tmp_path: Path):
    cut = own_data / "train-images.npy"
    os.truncate(cut, cut.stat().st_size // 2)
    done = launch(small_trial(), own_data, tmp_path)
    assert done.returncode == 1
    assert f"{cut}: " in done.stderr
    assert f"delete {own_data} and run snakemake prepare" in done.stderr
    assert done.leaves_nothing_behind()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"not an array at all"])
def test_a_file_that_holds_no_array_is_named(content: bytes, own_data: Path):
    (own_data / "test-labels.npy").write_bytes(content)
    with pytest.raises(UserError, match=r"test-labels\.npy: .*delete"):
        open_split(own_data, "test")


def test_loader_workers_deliver_the_same_batches_and_end(data: Path, tmp_path: Path):
    without = trained(small_trial(), data, tmp_path / "0")
    with_workers = measured(small_trial(loader_workers=2), data, tmp_path / "2")
    assert loss_per_step(with_workers).tolist() == loss_per_step(without).tolist()
    wait_until(lambda: not with_workers.survivors(), "the end of the workers", timeout_s=10)


def test_too_little_shared_memory_is_refused_before_it_hangs(data: Path, tmp_path: Path):
    """Fault B10, pytorch/pytorch#5040: a container's small /dev/shm ends in a bus error, or hangs."""
    in_small_shm = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=200k tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*in_small_shm, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount: unshare -m as root")
    trial = small_trial("single", 1, batch_size_per_device=128, loader_workers=2)
    done = launch(trial, data, tmp_path, prefix=in_small_shm)
    assert done.returncode == 1
    assert "MiB of shared memory" in done.stderr
    assert "set loader_workers: 0" in done.stderr
    wait_until(lambda: not done.survivors(), "the end of the workers", timeout_s=10)
