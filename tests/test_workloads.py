"""Every rank sees its own part of exactly the samples that there are, prepared once and whole."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from factories import a_trial, idx_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from dpscale.errors import UserError
from dpscale.workloads.arrays import open_split, write_prepared
from dpscale.workloads.datasets import DATASETS, cifar, idx, synthetic
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.datasets.sources import File
from dpscale.workloads.loading import Arrays, Loader, TrainingStream, evaluation_indices, open_loader, training_indices
from dpscale.workloads.models import MODELS
from dpscale.workloads.prepared import MANIFEST, held, read_manifest
from dpscale.workloads.samples import Samples

CPU = torch.device("cpu")


def epoch_of(world_size: int, *, samples: int = 100, global_batch: int = 12, seed: int = 0, epoch: int = 0):
    """[rank] -> indices (steps, batch per rank)."""
    return [
        training_indices(samples, global_batch // world_size, rank, world_size, seed, epoch)
        for rank in range(world_size)
    ]


# Training indices


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6])
def test_ranks_share_no_sample_of_an_epoch_and_none_comes_twice(world_size):
    indices = np.concatenate([rank.reshape(-1) for rank in epoch_of(world_size)])
    assert len(set(indices.tolist())) == len(indices) == 96


@pytest.mark.parametrize("world_size", [2, 3, 4, 6, 12])
def test_batch_k_is_the_same_set_of_samples_for_every_world_size(world_size):
    (alone,) = epoch_of(1)
    together = np.concatenate(epoch_of(world_size), axis=1)
    assert np.array_equal(np.sort(alone), np.sort(together))


def test_each_epoch_is_shuffled_anew():
    """Fault B3, pytorch/pytorch#31771: the same order in every epoch, for want of set_epoch."""
    first, second = epoch_of(1, epoch=0)[0], epoch_of(1, epoch=1)[0]
    assert not np.array_equal(first, second)


def test_each_epoch_leaves_other_samples_out():
    left_out = [set(range(100)) - set(epoch_of(1, epoch=epoch)[0].reshape(-1).tolist()) for epoch in range(3)]
    assert len({frozenset(samples) for samples in left_out}) == 3


def test_the_same_seed_gives_the_same_order_and_another_seed_another():
    assert np.array_equal(epoch_of(2, seed=7)[1], epoch_of(2, seed=7)[1])
    assert not np.array_equal(epoch_of(2, seed=7)[1], epoch_of(2, seed=8)[1])


def test_only_whole_global_batches_are_trained_on():
    assert [rank.shape for rank in epoch_of(2, samples=63, global_batch=64)] == [(0, 32)] * 2
    assert [rank.shape for rank in epoch_of(2, samples=129, global_batch=64)] == [(2, 32)] * 2


@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 7), st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_for_any_sizes_ranks_are_disjoint_and_equal(samples, batch, world_size, seed, epoch):
    ranks = [training_indices(samples, batch, rank, world_size, seed, epoch) for rank in range(world_size)]
    everything = np.concatenate([rank.reshape(-1) for rank in ranks])
    assert len({rank.shape for rank in ranks}) == 1
    assert len(set(everything.tolist())) == len(everything) == samples // (batch * world_size) * batch * world_size


# Evaluation indices


@settings(max_examples=200)
@given(st.integers(0, 200), st.integers(1, 70), st.integers(1, 7))
def test_every_test_sample_is_evaluated_exactly_once_by_any_number_of_ranks(samples, batch, world_size):
    """Fault B2, pytorch/examples#1063: a loader that drops what fills no batch never evaluates the end of the test set."""
    batches = [one for rank in range(world_size) for one in evaluation_indices(samples, batch, rank, world_size)]
    assert np.concatenate([np.empty(0, int), *batches]).tolist() == list(range(samples))
    assert all(1 <= len(one) <= batch for one in batches)


@pytest.mark.parametrize(("world_size", "parts"), [(1, [103]), (2, [51, 52]), (3, [34, 34, 35])])
def test_ranks_evaluate_nearly_equal_parts(world_size, parts):
    assert [sum(map(len, evaluation_indices(103, 32, rank, world_size))) for rank in range(world_size)] == parts


# idx files


IMAGES = np.arange(2 * 3 * 4).reshape(2, 3, 4)


def parsed(content: bytes) -> np.ndarray:
    return idx.read_idx(File("there/file", content))


def test_an_idx_file_holds_an_array():
    assert np.array_equal(parsed(idx_bytes(IMAGES)), IMAGES)


def test_an_idx_file_cut_anywhere_is_refused_by_its_place():
    for length in range(len(idx_bytes(IMAGES))):
        with pytest.raises(UserError, match=r"^there/file: .*copy it again"):
            parsed(idx_bytes(IMAGES)[:length])


@pytest.mark.parametrize(
    "content",
    [
        b"<html>404</html>",
        idx_bytes(IMAGES, kind=0x0D),
        b"\1" + idx_bytes(IMAGES)[1:],
        b"\0\0\x08\0\7",
        idx_bytes(IMAGES) + b"more",
    ],
    ids=["html", "floats", "magic", "no dimension", "too long"],
)
def test_another_file_is_refused_by_its_place(content):
    with pytest.raises(UserError, match=r"^there/file: .*copy it again"):
        parsed(content)


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A folder of idx files as MNIST has them, of 6 + 3 samples."""
    monkeypatch.setattr(idx, "COUNTS", {"train": 6, "test": 3})
    for split, count in idx.COUNTS.items():
        images, labels = idx.FILES[split]
        (tmp_path / images).write_bytes(idx_bytes(np.full((count, 28, 28), 7)))
        (tmp_path / f"{labels}.gz").write_bytes(gzip.compress(idx_bytes(np.arange(count))))
    return tmp_path


def read_mnist(folder: Path):
    return DATASETS["mnist"].read(DatasetConfig(source=str(folder)))


def test_mnist_is_read_from_its_four_files(mnist):
    splits = read_mnist(mnist)
    assert {split: images.shape for split, (images, _) in splits.items()} == {
        "train": (6, 1, 28, 28),
        "test": (3, 1, 28, 28),
    }
    assert splits["train"][1].tolist() == [0, 1, 2, 3, 4, 5]
    assert splits["train"][1].dtype == np.int64


@pytest.mark.parametrize("count", [5, 7])
def test_another_number_of_images_or_labels_is_refused(mnist, count):
    (mnist / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(np.arange(count))))
    places = f"{mnist}/train-images-idx3-ubyte and {mnist}/train-labels-idx1-ubyte.gz"
    with pytest.raises(UserError, match=f"{places}: 6 train images and {count} labels; the dataset has 6 of each"):
        read_mnist(mnist)


def test_images_in_place_of_labels_are_refused(mnist):
    (mnist / "train-images-idx3-ubyte").write_bytes(idx_bytes(np.arange(6)))
    with pytest.raises(UserError, match=r"train images of \(\), labels of \(\)"):
        read_mnist(mnist)


def test_a_missing_file_is_named_and_all_four_are_listed(mnist):
    (mnist / "t10k-images-idx3-ubyte").unlink()
    said = f"{mnist}: holds no t10k-images-idx3-ubyte, plain or as .gz; .* train-images-idx3-ubyte, train-labels-idx1"
    with pytest.raises(UserError, match=said):
        read_mnist(mnist)


DEBIAN = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="needs Debian's dataset-fashion-mnist")
def test_the_whole_of_fashion_mnist_is_read():
    splits = DATASETS["fashion_mnist"].read(DatasetConfig(source=str(DEBIAN)))
    assert {split: images.shape for split, (images, _) in splits.items()} == {
        "train": (60_000, 1, 28, 28),
        "test": (10_000, 1, 28, 28),
    }
    assert np.bincount(splits["train"][1]).tolist() == [6000] * 10


# CIFAR's binary version

CIFAR_FILES = {
    "cifar10": {"train": [f"data_batch_{part}.bin" for part in (1, 2, 3, 4, 5)], "test": ["test_batch.bin"]},
    "cifar100": {"train": ["train.bin"], "test": ["test.bin"]},
}


def cifar_files(name: str) -> dict[str, bytes]:
    """Files of 10 + 2 images: image i of a split has label i, red pixels i, green i + 1, and blue i + 2."""
    files = {}
    for split, count in (("train", 10), ("test", 2)):
        coarse = b"M" if name == "cifar100" else b""
        records = [
            coarse + bytes([i]) + b"".join(bytes([i + colour]) * 1024 for colour in range(3)) for i in range(count)
        ]
        names = CIFAR_FILES[name][split]
        size = count // len(names)
        files |= {file: b"".join(records[part * size : (part + 1) * size]) for part, file in enumerate(names)}
    return files


@pytest.fixture(params=CIFAR_FILES)
def small_cifar(request, tmp_path, monkeypatch):
    """(name, folder) of a CIFAR in which there are 10 + 2 images."""
    monkeypatch.setattr(cifar, "COUNTS", {"train": 10, "test": 2})
    for file, content in cifar_files(request.param).items():
        (tmp_path / file).write_bytes(content)
    return request.param, tmp_path


def read_cifar(name: str, folder: Path):
    return DATASETS[name].read(DatasetConfig(source=str(folder)))


def test_cifar_is_red_green_and_blue_with_the_fine_label(small_cifar):
    for split, count in (("train", 10), ("test", 2)):
        images, labels = read_cifar(*small_cifar)[split]
        assert (images.shape, images.dtype, labels.dtype) == ((count, 3, 32, 32), np.uint8, np.int64)
        assert labels.tolist() == list(range(count))
        assert np.array_equal(
            images, np.broadcast_to(np.add.outer(range(count), range(3))[..., None, None], images.shape)
        )


def test_a_cifar_file_cut_or_too_long_is_refused_by_its_place(small_cifar):
    name, folder = small_cifar
    file = folder / CIFAR_FILES[name]["test"][0]
    whole = file.read_bytes()
    for content in (b"", whole[:-1], whole[: len(whole) // 2], whole + b"1"):
        file.write_bytes(content)
        with pytest.raises(
            UserError, match=f"{file}: {len(content)} bytes; 2 images with their labels are .*copy it again"
        ):
            read_cifar(name, folder)


def test_a_cifar_label_that_is_no_class_is_refused_by_its_place(small_cifar):
    name, folder = small_cifar
    file = folder / CIFAR_FILES[name]["train"][0]
    classes = DATASETS[name].samples(DatasetConfig()).classes
    content = bytearray(file.read_bytes())
    content[len(content) // (2 if name == "cifar10" else 10) + (name == "cifar100")] = classes
    file.write_bytes(content)
    with pytest.raises(UserError, match=f"{file}: label {classes} at image 1, of {classes} classes"):
        read_cifar(name, folder)


def test_the_published_archive_in_a_folder_will_do(small_cifar, tmp_path_factory):
    name, unpacked = small_cifar
    (archive,) = DATASETS[name].published.sha256
    folder = tmp_path_factory.mktemp("downloads")
    with tarfile.open(folder / archive, "w:gz") as tar:
        tar.add(unpacked, "cifar-binary")
    packed, plain = read_cifar(name, folder), read_cifar(name, unpacked)
    assert all(np.array_equal(*arrays) for split in plain for arrays in zip(packed[split], plain[split], strict=True))


def test_cifar_for_python_is_refused_for_it_is_a_pickle(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"data": [], "labels": []}))
    with pytest.raises(UserError, match=r"holds no data_batch_1\.bin, .* or cifar-10-binary\.tar\.gz"):
        read_cifar("cifar10", tmp_path)


# What there is without files


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_a_dataset_is_what_its_row_says(name):
    row, settings_ = DATASETS[name], DatasetConfig(**({"train_samples": 120} if name == "synthetic" else {}))
    splits, samples = row.read(settings_), row.samples(settings_)
    assert tuple(len(splits[split][1]) for split in ("train", "test")) == row.counts(settings_)
    for images, labels in splits.values():
        assert (images.dtype, images.shape[1:], labels.dtype) == (np.uint8, samples.shape, np.int64)
        assert set(labels.tolist()) == set(range(samples.classes))


def test_digits_use_the_whole_range_of_brightness_and_all_1797_samples():
    splits = DATASETS["digits"].read(DatasetConfig())
    assert sum(len(labels) for _, labels in splits.values()) == 1797
    assert (splits["train"][0].min(), splits["train"][0].max()) == (0, 255)


def test_no_digit_is_in_both_parts_of_the_dataset():
    splits = DATASETS["digits"].read(DatasetConfig())
    train, test = ({image.tobytes() for image in images} for images, _ in splits.values())
    assert not train & test


def test_synthetic_data_is_the_same_every_time():
    first, second = (DATASETS["synthetic"].read(DatasetConfig(train_samples=50)) for _ in range(2))
    assert all(np.array_equal(first[split][0], second[split][0]) for split in first)


def test_synthetic_data_without_settings_are_what_they_always_were():
    """Records of before and after compare: the pixels of the default shape may not change."""
    splits = DATASETS["synthetic"].read(DatasetConfig(train_samples=50, test_samples=10))
    digest = hashlib.sha256(b"".join(array.tobytes() for split in splits.values() for array in split)).hexdigest()
    assert digest == "06a23221cfe514c3f382328521ced9487a9490b4e571aeed41284b2fdb2add94"


@pytest.mark.parametrize(("shape", "classes"), [([3, 32, 32], 100), ([1, 5, 7], 2)])
def test_synthetic_images_are_of_any_shape_and_number_of_classes(shape, classes):
    config = DatasetConfig(train_samples=2000, test_samples=10, sample_shape=shape, classes=classes)
    images, labels = DATASETS["synthetic"].read(config)["train"]
    assert DATASETS["synthetic"].samples(config) == Samples("images", tuple(shape), classes)
    assert images.shape == (2000, *shape)
    assert set(labels.tolist()) == set(range(classes))


def test_synthetic_images_are_the_same_in_blocks_of_any_size(monkeypatch):
    config = DatasetConfig(train_samples=10, test_samples=3, sample_shape=[3, 5, 7])
    whole = DATASETS["synthetic"].read(config)
    monkeypatch.setattr(synthetic, "BLOCK", 3 * 5 * 7 * 4)
    in_blocks = DATASETS["synthetic"].read(config)
    assert all(np.array_equal(whole[split][0], in_blocks[split][0]) for split in whole)


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_fits_a_model(name):
    samples = DATASETS[name].samples(DatasetConfig())
    given = {"torchvision": {"name": "resnet18"}}  # the one row whose options have no default
    models = [(row, row.options(**given.get(model, {}))) for model, row in MODELS.items()]
    assert any(row.refusal(options, samples) is None for row, options in models)


# The prepared folder


def splits_of(train: int = 20, test: int = 5):
    generator = np.random.default_rng(0)
    return {
        split: (generator.integers(0, 256, (n, 2, 4, 4)).astype(np.uint8), generator.integers(0, 3, n))
        for split, n in (("train", train), ("test", test))
    }


CLASSES = 3


@pytest.fixture
def prepared(tmp_path):
    write_prepared(tmp_path / "made", "made", CLASSES, splits_of())
    return tmp_path / "made"


def test_prepared_arrays_come_back(prepared):
    for split, (images, labels) in splits_of().items():
        mapped_images, mapped_labels = open_split(prepared, split)
        assert np.array_equal(mapped_images, images)
        assert np.array_equal(mapped_labels, labels)
        assert isinstance(mapped_images, np.memmap)


def test_what_a_killed_preparation_left_goes_with_the_next_one(tmp_path):
    (tmp_path / ".made-making").mkdir()
    (tmp_path / ".made-making" / "train-images.npy").write_bytes(b"half of it")
    write_prepared(tmp_path / "made", "made", CLASSES, splits_of())
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert "train-images.npy" in read_manifest(tmp_path / "made").sha256


def test_two_preparations_of_one_folder_at_a_time_are_refused(tmp_path):
    with (
        held(tmp_path / ".made-making"),
        pytest.raises(UserError, match=r"\.made-making: another process is preparing this dataset; wait for it"),
    ):
        write_prepared(tmp_path / "made", "made", CLASSES, splits_of())


def test_a_split_can_be_cut_to_its_first_samples(prepared):
    images, labels = open_split(prepared, "train", 7)
    assert np.array_equal(images, splits_of()["train"][0][:7])
    assert len(labels) == 7


def test_the_manifest_says_what_there_is(prepared):
    manifest = read_manifest(prepared)
    images = splits_of()["train"][0] / 255
    assert (manifest.counts, manifest.sample_shape, manifest.classes) == (
        {"train": 20, "test": 5},
        [2, 4, 4],
        CLASSES,
    )
    assert manifest.mean == pytest.approx(images.mean(axis=(0, 2, 3)))
    assert manifest.std == pytest.approx(images.std(axis=(0, 2, 3)))
    assert manifest.sha256.keys() == {path.name for path in prepared.iterdir()} - {MANIFEST}


def test_others_may_read_what_one_has_prepared(prepared):
    assert prepared.stat().st_mode & 0o777 == 0o755


def test_preparing_again_replaces_the_folder(prepared):
    write_prepared(prepared, "made", CLASSES, splits_of(train=8))
    assert read_manifest(prepared).counts["train"] == 8
    assert [path.name for path in prepared.parent.iterdir()] == ["made"]


@pytest.mark.parametrize("kind", ["images", "labels"])
def test_a_file_cut_anywhere_is_refused_with_the_remedy(prepared, kind):
    path = prepared / f"train-{kind}.npy"
    whole = path.read_bytes()
    for length in (0, 1, 5, 64, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=f"train-{kind}.npy: .*; delete {prepared} and run snakemake prepare"):
            open_split(prepared, "train")


def test_a_file_of_another_length_is_refused(prepared):
    np.save(prepared / "test-labels.npy", np.zeros(4, np.int64))
    with pytest.raises(UserError, match="4 samples, the manifest says 5"):
        open_split(prepared, "test")


def test_a_missing_file_is_refused(prepared):
    (prepared / "test-images.npy").unlink()
    with pytest.raises(UserError, match="run snakemake prepare"):
        open_split(prepared, "test")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff"], ids=str)
def test_a_manifest_that_is_none_is_refused_with_the_remedy(prepared, content):
    (prepared / MANIFEST).write_bytes(content)
    with pytest.raises(UserError, match=rf"no prepared dataset .*; delete {prepared} and run snakemake prepare"):
        read_manifest(prepared)


def test_a_manifest_that_is_not_there_is_to_be_made(tmp_path):
    with pytest.raises(UserError, match=r"no prepared dataset .*; make it: snakemake prepare"):
        read_manifest(tmp_path)


def test_a_manifest_of_another_format_is_refused(prepared):
    data = json.loads((prepared / MANIFEST).read_text())
    (prepared / MANIFEST).write_text(json.dumps(data | {"format_version": 1}))
    with pytest.raises(UserError, match="format 1, this code reads 3; delete"):
        read_manifest(prepared)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_that_is_no_class_is_refused_and_nothing_is_made(tmp_path, label):
    splits = splits_of()
    splits["test"][1][2] = label
    with pytest.raises(UserError, match=f"made: test labels reach from .*{label}.*, not within 0 to 2"):
        write_prepared(tmp_path / "made", "made", CLASSES, splits)
    assert list(tmp_path.iterdir()) == []


def test_images_without_labels_are_refused(tmp_path):
    splits = splits_of()
    splits["train"] = (splits["train"][0], splits["train"][1][:-1])
    with pytest.raises(UserError, match="made: train has 20 inputs but 19 labels"):
        write_prepared(tmp_path / "made", "made", CLASSES, splits)


def test_a_failure_on_the_way_leaves_what_was_there_and_nothing_half_made(prepared, monkeypatch):
    before = read_manifest(prepared)

    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(OSError, match="no space"):
        write_prepared(prepared, "made", CLASSES, splits_of(train=8))
    assert [path.name for path in prepared.parent.iterdir()] == ["made"]
    assert read_manifest(prepared) == before


# Batches


def loader(workers: int = 0) -> Loader:
    images, labels = splits_of()["train"]
    values = images / 255
    return Loader(
        Arrays(images, labels),
        mean=values.mean(axis=(0, 2, 3)).tolist(),
        std=values.std(axis=(0, 2, 3)).tolist(),
        device=CPU,
        workers=workers,
    )


def test_images_are_normalised_to_mean_0_and_standard_deviation_1():
    ((images, _),) = loader().batches([np.arange(20)])
    assert images.dtype == torch.float32
    assert images.mean(dim=(0, 2, 3)).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert images.std(dim=(0, 2, 3), correction=0).tolist() == pytest.approx([1, 1], abs=1e-5)


def test_normalising_is_what_torchvision_does():
    from torchvision.transforms.v2.functional import normalize

    images, _ = splits_of()["train"]
    mean, std = (images / 255).mean(axis=(0, 2, 3)).tolist(), (images / 255).std(axis=(0, 2, 3)).tolist()
    ((ours, _),) = loader().batches([np.arange(20)])
    assert torch.allclose(ours, normalize(torch.from_numpy(images).float() / 255, mean, std), atol=1e-5)


def test_batches_come_in_the_order_of_their_indices():
    order = [np.array([3, 1]), np.array([0, 2])]
    _, labels = splits_of()["train"]
    assert [batch[1].tolist() for batch in loader().batches(order)] == [labels[rows].tolist() for rows in order]


def test_worker_processes_deliver_the_same_batches():
    order = list(np.arange(20).reshape(5, 4))
    for (images, labels), (their_images, their_labels) in zip(
        loader().batches(order), loader(workers=2).batches(order), strict=True
    ):
        assert torch.equal(images, their_images)
        assert torch.equal(labels, their_labels)


def test_no_indices_are_no_batches():
    assert list(loader().batches([])) == []


def stream(folder: Path, **changes) -> TrainingStream:
    return TrainingStream(a_trial(batch_size_per_device=3, **changes), folder, 0, CPU)


def test_a_stream_cut_into_segments_is_the_same_stream(prepared):
    whole = [labels.tolist() for _, labels in stream(prepared).batches(0, 7)]
    parts = [
        labels.tolist() for first, n in ((0, 2), (2, 4), (6, 1)) for _, labels in stream(prepared).batches(first, n)
    ]
    assert whole == parts


def test_an_epoch_of_a_stream_is_as_many_steps_as_there_are_whole_global_batches(prepared):
    assert stream(prepared).steps_per_epoch == 20 // 6
    assert stream(prepared, train_samples=13).steps_per_epoch == 2


def test_too_few_samples_for_one_step_are_refused(prepared):
    with pytest.raises(UserError, match="5 training samples do not fill one global batch of 6; use a smaller batch"):
        stream(prepared, train_samples=5)


def test_the_test_split_is_cut_by_its_own_limit(prepared):
    assert open_loader(a_trial(train_samples=2, test_samples=4), prepared, "test", CPU).num_samples == 4
