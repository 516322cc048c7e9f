"""Sequences of tokens: kept small, delivered whole, and every token of every test sequence predicted exactly once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from factories import a_record, a_segment, a_single_trial, an_evaluation
from launching import Trained, small_trial, trained

from dpscale import metrics
from dpscale.errors import UserError
from dpscale.record import Evaluation
from dpscale.workloads.arrays import open_split, write_prepared
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.loading import open_loader
from dpscale.workloads.prepared import read_manifest
from dpscale.workloads.samples import Samples

CPU = torch.device("cpu")
ROW = DATASETS["synthetic_tokens"]
SMALL = DatasetConfig(train_samples=640, test_samples=103, vocabulary=16, context=12)


# The dataset


@pytest.mark.parametrize(
    ("vocabulary", "kind"), [(2, np.uint8), (256, np.uint8), (257, np.int16), (32_768, np.int16), (32_769, np.int32)]
)
def test_tokens_take_the_smallest_type_that_holds_the_vocabulary(vocabulary, kind):
    config = DatasetConfig(train_samples=30, test_samples=3, vocabulary=vocabulary, context=50)
    for inputs, labels in ROW.read(config).values():
        assert inputs.dtype == labels.dtype == kind
        assert 0 <= min(inputs.min(), labels.min()) <= max(inputs.max(), labels.max()) < vocabulary


def test_labels_are_the_tokens_that_follow():
    inputs, labels = ROW.read(SMALL)["train"]
    assert inputs.shape == labels.shape == (640, 12)
    assert np.array_equal(inputs[:, 1:], labels[:, :-1])


def test_a_token_has_three_successors_of_which_one_is_likely():
    inputs, labels = ROW.read(DatasetConfig(train_samples=2000, test_samples=1, vocabulary=40, context=50))["train"]
    counts = np.zeros((40, 40))
    np.add.at(counts, (inputs, labels), 1)
    shares = np.sort(counts / counts.sum(axis=1, keepdims=True))[:, ::-1]
    assert (shares[:, 3:] == 0).all()
    assert np.median(shares[:, 0]) == pytest.approx(0.7, abs=0.03)


def test_both_splits_are_of_one_chain_and_none_copies_the_other():
    made = ROW.read(DatasetConfig(train_samples=640, test_samples=103, vocabulary=16, context=60))
    sequences = {split: {row.tobytes() for row in inputs} for split, (inputs, _) in made.items()}
    assert not sequences["train"] & sequences["test"]
    pairs = {split: {*zip(inputs.flat, labels.flat, strict=True)} for split, (inputs, labels) in made.items()}
    assert pairs["test"] <= pairs["train"]


def test_it_is_the_same_every_time():
    first, second = (ROW.read(SMALL)["test"][0] for _ in range(2))
    assert np.array_equal(first, second)


# Prepared, and loaded


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "synthetic_tokens"
    write_prepared(folder, "synthetic_tokens", ROW.samples(SMALL).classes, ROW.read(SMALL))
    return folder


def test_the_manifest_says_that_these_are_tokens(tokens):
    manifest = read_manifest(tokens)
    assert manifest.samples == Samples("tokens", (12,), 16)
    assert (manifest.mean, manifest.std) == ([], [])
    assert manifest.sha256.keys() == {
        f"{split}-{what}.npy" for split in ("train", "test") for what in ("tokens", "labels")
    }


def test_tokens_stay_small_on_the_disk_and_become_int64_in_a_batch(tokens):
    stored, _ = open_split(tokens, "train")
    assert stored.dtype == np.uint8
    loader = open_loader(a_single_trial(), tokens, "train", CPU)
    ((inputs, labels),) = loader.batches([np.array([5, 3])])
    assert inputs.dtype == labels.dtype == torch.int64
    assert inputs.tolist() == stored[[5, 3]].tolist()
    assert torch.equal(inputs[:, 1:], labels[:, :-1])


def test_workers_deliver_the_same_tokens(tokens):
    rows = [np.array([5, 3]), np.array([0, 1])]
    alone, by_workers = (
        list(open_loader(a_single_trial(loader_workers=workers), tokens, "train", CPU).batches(rows))
        for workers in (0, 1)
    )
    for mine, theirs in zip(alone, by_workers, strict=True):
        assert all(map(torch.equal, mine, theirs))


@pytest.mark.parametrize(("place", "name"), [(0, "tokens"), (1, "labels")])
def test_a_token_outside_the_vocabulary_is_refused(tmp_path, place, name):
    splits = {split: tuple(array.copy() for array in arrays) for split, arrays in ROW.read(SMALL).items()}
    splits["test"][place][2, 3] = 16
    with pytest.raises(UserError, match=f"made: test {name} reach from 0 to 16, not within 0 to 15"):
        write_prepared(tmp_path / "made", "made", 16, splits)


# Trained and evaluated

ADAM = {"name": "adamw", "lr": 3e-3, "momentum": None, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def runs(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """The same global batches on one rank, on two, and on two with the layers sharded."""

    def train(strategy: str, ranks: int) -> Trained:
        trial = small_trial(
            strategy,
            ranks,
            model="gpt",
            model_options={},
            dataset="synthetic_tokens",
            optimizer=ADAM,
            batch_size_per_device=64 // ranks,
            epochs=3,
            warmup_epochs=1,
            steps=None,
            warmup_steps=None,
        )
        return trained(trial, tokens, tmp_path_factory.mktemp(strategy))

    return {"single": train("single", 1), "ddp": train("ddp", 2), "fsdp": train("fsdp", 2)}


def evaluations(done: Trained) -> list[Evaluation]:
    return [segment.evaluation for segment in done.record.segments]


@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp"])
def test_every_token_of_every_test_sequence_is_predicted_once(runs, strategy):
    for evaluation, of_one in zip(evaluations(runs[strategy]), evaluations(runs["single"]), strict=True):
        assert (evaluation.samples, evaluation.predictions) == (103, 103 * 12)
        assert evaluation.correct == of_one.correct
        assert evaluation.loss == pytest.approx(of_one.loss, abs=1e-5)


def test_samples_are_sequences(runs):
    for segment in runs["ddp"].record.segments:
        assert segment.samples == [320, 320]


def test_the_loss_falls_and_accuracy_is_a_share_of_all_tokens(runs):
    losses = [evaluation.loss for evaluation in evaluations(runs["single"])]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.75 * np.log(16)
    record = runs["single"].record
    last = record.segments[-1].evaluation
    assert metrics.final_accuracy(record) == last.correct / (103 * 12)
    assert 2 / 16 < metrics.final_accuracy(record) < 0.75


def test_compute_is_seen_where_matrices_are_multiplied(runs):
    assert runs["ddp"].record.effective_precision["compute"] == "float32"


def test_an_accuracy_is_of_predictions_not_of_samples():
    evaluation = an_evaluation(samples=10, correct=30)
    of_tokens = Evaluation(**{**vars(evaluation), "predictions": 40})
    assert metrics.final_accuracy(a_record(segments=[a_segment(evaluation=of_tokens)])) == 0.75
