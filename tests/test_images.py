"""Images in files: packed once, whole or not at all, and shown the same to any ranks."""

from __future__ import annotations

import fcntl
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import images
import numpy as np
import psutil
import pytest
import torch
from factories import a_single_trial
from hypothesis import given, settings
from hypothesis import strategies as st
from launching import SCRIPTS, launch, small_trial, trained, wait_until
from PIL import Image
from torchvision import datasets
from torchvision.transforms import v2

from dpscale.config import load_config
from dpscale.errors import ConfigError, UserError
from dpscale.evaluation import evaluate
from dpscale.planning.plan import plan_trials
from dpscale.training import Training
from dpscale.workloads import packing
from dpscale.workloads.datasets import DATASETS
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.image_files import find
from dpscale.workloads.images import AREA, ASPECT, Box, decoded, random_box, seen
from dpscale.workloads.loading import TrainingStream, open_loader, training_indices
from dpscale.workloads.packed import PackedImages
from dpscale.workloads.prepared import MANIFEST, Manifest, Packing, packed_file, read_manifest, staged
from dpscale.world import World

CPU = torch.device("cpu")
ALONE = World(0, 0, node_rank=0, size=1, devices_per_node=1, device=CPU)
CLASSES = list(images.CLASSES)
PARTS = 4  # images in a packed file: several files of few images
AS_THEY_ARE = Packing(images_per_file=PARTS, short_side=None, quality=None, augment=True)
CROP = 24


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train/ with 3 x 6 and val/ with 3 x 2 JPEGs of 40 x 30."""
    return images.tree(tmp_path_factory.mktemp("tree"))


def packed(source: Path, folder: Path, packing_: Packing = AS_THEY_ARE, crop: int = CROP) -> Manifest:
    return packing.pack(folder, "image_folder", (3, crop, crop), find(source, None), packing_)


@pytest.fixture(scope="module")
def made(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree, packed as it is."""
    folder = tmp_path_factory.mktemp("data") / "image_folder"
    packed(tree, folder)
    return folder


# The plan


def planned(settings_: dict[str, Any], **workload: Any) -> Any:
    experiment = {
        "workload": {"dataset": "imagenet", "model": "resnet50", **workload},
        "strategies": {"ddp": None},
        "topologies": ["1x2"],
        "batch": {"per_device": 400},
        "epochs": 2,
    }
    return plan_trials(load_config({"datasets": {"imagenet": settings_}, "experiments": {"quick": experiment}}))


@pytest.mark.parametrize(
    ("settings_", "workload", "said"),
    [
        (
            {"source": "/x"},
            {"model": "convnet"},
            "images of (3, 224, 224), but model 'convnet' takes images of (1, 28, 28)",
        ),
        (
            {"source": "/x"},
            {"train_samples": 2_000_000},
            "train_samples = 2000000: imagenet has 1281167; use at most that",
        ),
        ({}, {}, "say where its files lie, in datasets.imagenet.source; docs/images.md says which files"),
        ({"source": "/x", "quality": 80}, {}, "quality goes with short_side"),
        ({"source": "/x", "context": 8}, {}, "takes source, classes, crop, augment, short_side, quality only"),
        ({"source": "/x", "crop": 0}, {}, "datasets.imagenet.crop = 0"),
    ],
)
def test_what_can_not_be_is_refused_before_a_file_is_read(settings_, workload, said):
    with pytest.raises(ConfigError) as refused:
        planned(settings_, **workload)
    assert said in str(refused.value)


def test_of_a_part_of_imagenet_and_of_ones_own_images_the_number_is_known_when_they_are_prepared():
    assert planned({"source": "/x", "classes": 10}, train_samples=2_000_000)["quick"]
    assert DATASETS["imagenet"].counts(DatasetConfig(classes=1000)) == (1_281_167, 50_000)
    assert DATASETS["imagenet"].counts(DatasetConfig(classes=10)) is None
    assert DATASETS["image_folder"].counts(DatasetConfig()) is None


# Packed


def packed_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Which files there are, and whether they are those of before: (inode, time of the last change)."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in sorted(folder.glob("*.images"))}


def test_packed_images_are_the_bytes_and_labels_of_the_files(tree, made):
    _, splits = find(tree, None)
    for split, of_split in splits.items():
        stored = PackedImages(made, split)
        assert [stored.encoded(place) for place in range(len(stored))] == [image.read() for image in of_split]
        assert stored.labels.tolist() == [image.label for image in of_split]
    assert [name for name in packed_files(made) if name.startswith("train")] == [
        f"train-0000{number}.images" for number in range(5)
    ]


def test_packed_images_have_the_pixels_that_imagefolder_shows(tree, made):
    theirs = datasets.ImageFolder(str(tree / "val"))
    stored = PackedImages(made, "test")
    for place, (image, label) in enumerate(theirs):
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(stored.encoded(place)))), np.asarray(image))
        assert stored.labels[place] == label


def test_the_manifest_says_what_is_packed(tree, made):
    manifest = read_manifest(made)
    pixels = np.stack([np.asarray(Image.open(path)) for path in sorted(tree.glob("train/*/*"))]) / 255
    assert (manifest.counts, manifest.classes, manifest.sample_shape) == ({"train": 18, "test": 6}, 3, [3, CROP, CROP])
    assert manifest.mean == pytest.approx(pixels.mean(axis=(0, 1, 2)))
    assert manifest.std == pytest.approx(pixels.std(axis=(0, 1, 2)))
    assert manifest.packing == AS_THEY_ARE
    assert (made / "classes.txt").read_text().split() == CLASSES
    for name, digest in manifest.sha256.items():
        assert packing.sha256_of(made / name) == digest
    assert manifest.sha256.keys() == {path.name for path in made.iterdir()} - {MANIFEST, "source", "packing.json"}


def test_larger_images_are_resized_and_small_ones_keep_their_bytes(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "tree")
    large = tmp_path / "tree" / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG"
    images.picture(0, 0, (400, 200)).save(large, quality=95)
    packed(tmp_path / "tree", tmp_path / "made", replace(AS_THEY_ARE, short_side=32, quality=90))
    stored = PackedImages(tmp_path / "made", "train")
    assert Image.open(io.BytesIO(stored.encoded(0))).size == (64, 32)
    small = sorted(tree.glob(f"train/{CLASSES[0]}/*"))[1]
    assert stored.encoded(1) == small.read_bytes()


def test_resized_images_look_as_torchvision_would_resize_them(tree, tmp_path):
    packed(tree, tmp_path / "made", replace(AS_THEY_ARE, short_side=15, quality=95))
    for place, path in enumerate(sorted(tree.glob("val/*/*"))):
        ours = np.asarray(Image.open(io.BytesIO(PackedImages(tmp_path / "made", "test").encoded(place))), int)
        assert np.abs(ours - np.asarray(v2.Resize(15)(Image.open(path)), int)).mean() < 8  # of 255: JPEG's own loss


@pytest.mark.parametrize("kind", ["grey.png", "palette.png", "alpha.png", "cmyk.jpg", "grey.jpg"])
@pytest.mark.parametrize("short_side", [None, 8])
def test_images_of_any_kind_are_shown_as_rgb(tree, tmp_path, kind, short_side):
    shutil.copytree(tree, tmp_path / "tree")
    mode = {"grey": "L", "palette": "P", "alpha": "RGBA", "cmyk": "CMYK"}[kind.split(".")[0]]
    images.picture(0, 0, (24, 24)).convert(mode).save(tmp_path / "tree" / "train" / CLASSES[0] / f"a{kind}")
    packed(tmp_path / "tree", tmp_path / "made", replace(AS_THEY_ARE, short_side=short_side, quality=short_side and 90))
    ((shown, _),) = open_loader(a_single_trial(), tmp_path / "made", "train", CPU).batches([np.arange(19)])
    assert shown.shape == (19, 3, CROP, CROP)


@pytest.mark.parametrize("kind", ["png", "tif", "pgm"])
def test_sixteen_bits_are_shown_from_black_to_white(tree, tmp_path, kind):
    """Pillow's own conversion cuts off whatever is above 255: white."""
    shutil.copytree(tree, tmp_path / "tree")
    path = tmp_path / "tree" / "train" / CLASSES[0] / f"a.{kind}"
    ramp = np.tile(np.linspace(0, 65535, 32).astype(np.uint16), (32, 1))
    Image.fromarray(ramp).save(path)
    assert np.array_equal(decoded(path.read_bytes()), np.repeat((ramp // 257).astype(np.uint8)[..., None], 3, axis=2))
    packed(tmp_path / "tree", tmp_path / "made", replace(AS_THEY_ARE, augment=False))
    shown_ = PackedImages(tmp_path / "made", "train")[0, np.array([0])][0]
    assert 100 < shown_.double().mean() < 155


def test_values_of_no_known_range_are_refused(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "tree")
    path = tmp_path / "tree" / "train" / CLASSES[0] / "a.tif"
    Image.fromarray(np.zeros((8, 8), np.float32)).save(path)
    with pytest.raises(UserError, match=f"{path}: OSError: its values have 32 bits and no known range"):
        packed(tmp_path / "tree", tmp_path / "made")


def spoiled(tree: Path, folder: Path) -> tuple[Path, list[Path]]:
    """A copy in which three images can't be read: one cut, one of another kind, one empty."""
    shutil.copytree(tree, folder)
    paths = sorted(folder.glob("train/*/*"))[2::6]
    paths[0].write_bytes(paths[0].read_bytes()[:300])
    paths[1].write_text("<html>404</html>")
    paths[2].write_bytes(b"")
    return folder, paths


def test_all_images_that_can_not_be_read_are_named_and_nothing_is_made(tree, tmp_path):
    """Fault B9, facebookresearch/mmf#870: one bad JPEG, found hours later, without its path."""
    source, paths = spoiled(tree, tmp_path / "tree")
    with pytest.raises(UserError, match=r"3 of 24 images can't be read; copy these again") as refused:
        packed(source, tmp_path / "data" / "made")
    lines = str(refused.value).splitlines()[1:]
    assert [line.split(": ")[0] for line in lines] == [str(path) for path in paths]
    assert [line.split(": ", 2)[2] for line in lines[1:]] == ["of no known format", "it is empty"]
    assert not (tmp_path / "data" / "made").exists()


def test_once_they_are_mended_only_what_they_were_packed_with_is_packed_again(tree, tmp_path, capsys):
    source, paths = spoiled(tree, tmp_path / "tree")
    with pytest.raises(UserError):
        packed(source, tmp_path / "data" / "made")
    before = packed_files(tmp_path / "data" / ".made-packing")
    for path in paths:
        shutil.copy(tree / path.relative_to(source), path)
    capsys.readouterr()
    packed(source, tmp_path / "data" / "made")
    assert before.items() <= packed_files(tmp_path / "data" / "made").items()
    assert capsys.readouterr().out.splitlines()[0] == "12 of 24 images are packed already"


def test_preparing_says_how_far_it_is(tree, tmp_path, capsys):
    packed(tree, tmp_path / "made")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[-1] == "24 of 24 images"


def test_a_process_that_is_ended_by_force_is_told_and_what_is_done_stays(tree, tmp_path, monkeypatch):
    real = packing.packed

    def die_at_the_last(content: bytes, packing_: Packing) -> Any:
        if content == last.read_bytes():
            wait_until(lambda: len(list((tmp_path / ".made-packing").glob("*.images"))) == 6, "all others")
            os.kill(os.getpid(), signal.SIGKILL)
        return real(content, packing_)

    last = sorted(tree.glob("val/*/*"))[-1]
    with monkeypatch.context() as changed:
        changed.setattr(packing, "packed", die_at_the_last)
        with pytest.raises(UserError, match="ended by force, perhaps for lack of memory; run it again"):
            packed(tree, tmp_path / "made")
    before = packed_files(tmp_path / ".made-packing")
    packed(tree, tmp_path / "made")
    assert before.items() <= packed_files(tmp_path / "made").items()


def test_a_preparation_that_is_killed_leaves_no_process_and_is_finished_by_the_next(tree, tmp_path, monkeypatch):
    real = packing.packed

    def hang_at_the_last(content: bytes, packing_: Packing) -> Any:
        if content == last.read_bytes():
            signal.pause()
        return real(content, packing_)

    last, working = sorted(tree.glob("val/*/*"))[-1], tmp_path / ".made-packing"
    with monkeypatch.context() as changed:
        changed.setattr(packing, "packed", hang_at_the_last)
        preparation = multiprocessing.get_context("fork").Process(target=packed, args=(tree, tmp_path / "made"))
        preparation.start()
    wait_until(lambda: len(list(working.glob("*.images.json"))) == 6, "all files but the last")
    workers = psutil.Process(preparation.pid).children()
    preparation.kill()
    preparation.join()
    assert workers
    wait_until(lambda: not any(worker.is_running() for worker in workers), "the end of the workers", timeout_s=10)
    assert not (tmp_path / "made").exists()
    before = packed_files(working)
    packed(tree, tmp_path / "made")
    assert len(before) == 6
    assert before.items() <= packed_files(tmp_path / "made").items()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_another_crop_packs_nothing_anew_and_another_short_side_does(tree, tmp_path):
    packed(tree, tmp_path / "made")
    before = packed_files(tmp_path / "made")
    (tmp_path / "made" / MANIFEST).unlink()  # as Snakemake does before it prepares again
    packed(tree, tmp_path / "made", replace(AS_THEY_ARE, augment=False), crop=16)
    manifest = read_manifest(tmp_path / "made")
    assert (manifest.sample_shape, manifest.packing.augment) == ([3, 16, 16], False)
    assert packed_files(tmp_path / "made") == before
    packed(tree, tmp_path / "made", replace(AS_THEY_ARE, short_side=16, quality=90))
    assert not packed_files(tmp_path / "made").items() & before.items()


def test_the_names_of_classes_are_whatever_bytes_a_folder_may_have(tree, tmp_path):
    names = [b"nan", b'it\'s "mine" $x', b"-rf", "\u00e9t\u00e9".encode(), b"caf\xe9", b"10", b"9"]
    for split in ("train", "val"):
        for name in names:
            folder = os.fsencode(tmp_path / "tree" / split) + b"/" + name
            os.makedirs(folder)
            images.picture(0, 0, (8, 8)).save(os.fsdecode(folder + b"/a b.jpg"))
    packed(tmp_path / "tree", tmp_path / "made")
    assert (tmp_path / "made" / "classes.txt").read_bytes().splitlines() == sorted(names)


def test_another_preparation_of_the_same_folder_is_refused(tree, tmp_path):
    (tmp_path / ".made-packing").mkdir()
    descriptor = os.open(tmp_path / ".made-packing", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another process is preparing this dataset; wait for it"):
        packed(tree, tmp_path / "made")
    os.close(descriptor)


def test_others_may_read_what_one_has_packed(made):
    assert made.stat().st_mode & 0o777 == 0o755


def test_a_packed_folder_is_staged_to_a_nodes_own_disk(made, tmp_path):
    copy = staged(made, tmp_path / "local")
    assert PackedImages(copy, "train").encoded(7) == PackedImages(made, "train").encoded(7)


@pytest.mark.parametrize("name", ["train-00001.images", "train-spans.npy", "train-labels.npy"])
@pytest.mark.parametrize("remains", [None, 0, 100])
def test_a_packed_file_that_is_cut_or_missing_is_refused_with_the_remedy(made, tmp_path, name, remains):
    folder = Path(shutil.copytree(made, tmp_path / "made"))
    if remains is None:
        (folder / name).unlink()
    else:
        os.truncate(folder / name, remains)
    with pytest.raises(UserError, match=rf"{name}: .*; delete {folder} and run snakemake prepare"):
        PackedImages(folder, "train")


def damaged(source: Path, folder: Path, place: int) -> Path:
    """A copy whose training image of that place is nothing but zeros."""
    shutil.copytree(source, folder)
    stored = PackedImages(folder, "train")
    start, size = stored.spans[place].tolist()
    with (folder / packed_file("train", place // stored.images_per_file)).open("r+b") as file:
        file.seek(start)
        file.write(bytes(size))
    return folder


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_was_damaged_since_is_named(made, tmp_path, workers):
    folder = damaged(made, tmp_path / "made", 6)
    loader = open_loader(a_single_trial(loader_workers=workers), folder, "train", CPU)
    with pytest.raises(UserError, match=rf"train-00001\.images: train image 6 can't be read .*delete {folder}"):
        list(loader.batches([np.arange(3), np.arange(5, 8)]))


# Decoded


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("size", [(33, 17), (500, 375), (1, 1)])
def test_a_jpeg_has_the_pixels_that_pillow_decodes(subsampling, size):
    content = io.BytesIO()
    images.picture(0, 0, size).save(content, "JPEG", subsampling=subsampling)
    assert np.array_equal(decoded(content.getvalue()), np.asarray(Image.open(content)))


def test_a_large_jpeg_is_decoded_no_larger_than_it_is_needed():
    content = io.BytesIO()
    images.picture(0, 0, (1600, 1200)).save(content, "JPEG")
    assert decoded(content.getvalue(), 200, 150).shape == (150, 200, 3)
    assert decoded(content.getvalue(), 201, 150).shape[0] < 600
    small = seen(content.getvalue(), lambda width, height: Box(400, 300, 800, 600), 50)
    whole = Image.open(content).crop((400, 300, 1200, 900)).resize((50, 50), Image.Resampling.BILINEAR)
    assert np.abs(small.permute(1, 2, 0).numpy().astype(int) - np.asarray(whole, int)).mean() < 2


# Shown


def shown(folder: Path, split: str = "train", rows: list[np.ndarray] | None = None, **how: Any) -> list[torch.Tensor]:
    """Batches as a rank without normalisation would see them, uint8."""
    stored = PackedImages(folder, split, seed=how.get("seed", 0))
    return [stored[how.get("epoch", 0), row][0] for row in rows or [np.arange(len(stored))]]


def test_evaluation_shows_what_torchvisions_resize_and_centre_crop_show(tree, tmp_path):
    source = images.tree(tmp_path / "tree", train=1, val=2, size=(320, 256))
    packed(source, tmp_path / "made", crop=224)
    (ours,) = shown(tmp_path / "made", "test")
    usual = v2.Compose([v2.Resize(256), v2.CenterCrop(224), v2.PILToTensor()])
    theirs = torch.stack([usual(image) for image, _ in datasets.ImageFolder(str(source / "val"))])
    assert torch.equal(ours, theirs)


@settings(max_examples=200)
@given(st.integers(1, 700), st.integers(1, 700), st.integers(0, 2**32))
def test_a_random_crop_lies_in_the_image(width, height, seed):
    box = random_box(width, height, np.random.default_rng(seed))
    assert box.width > 0
    assert box.height > 0
    assert 0 <= box.left <= box.left + box.width <= width
    assert 0 <= box.top <= box.top + box.height <= height


def test_random_crops_have_the_areas_and_shapes_of_torchvisions():
    ours = [random_box(500, 375, np.random.default_rng(seed)) for seed in range(2000)]
    torch.manual_seed(0)
    image = torch.empty(3, 375, 500)
    theirs = [v2.RandomResizedCrop(224).make_params([image]) for _ in range(2000)]
    for value in (
        lambda box: box["width"] * box["height"] / (500 * 375),
        lambda box: np.log(box["width"] / box["height"]),
        lambda box: box["left"] / 500,
        lambda box: box["top"] / 375,
    ):
        mine, others = (np.array([value(box) for box in boxes]) for boxes in ([b._asdict() for b in ours], theirs))
        quantiles = [np.quantile(values, [0.1, 0.5, 0.9]) for values in (mine, others)]
        assert np.allclose(*quantiles, atol=0.05)


@pytest.mark.parametrize(("width", "height"), [(1000, 10), (10, 1000)])
def test_of_an_image_too_long_for_a_random_crop_the_middle_is_taken_as_torchvision_does(width, height):
    ours = random_box(width, height, np.random.default_rng(0))
    params = v2.RandomResizedCrop(224, scale=AREA, ratio=ASPECT).make_params([torch.empty(3, height, width)])
    assert ours._asdict() == params


def test_what_is_random_follows_from_seed_epoch_and_image_alone(made):
    (whole,) = shown(made)
    assert torch.equal(whole, shown(made)[0])
    one_by_one = torch.cat(shown(made, rows=[np.array([place]) for place in range(18)]))
    assert torch.equal(whole, one_by_one)
    for other in (shown(made, epoch=1), shown(made, seed=1)):
        assert not torch.equal(whole, other[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_and_workers_crop_the_same_picture_each_in_its_own_way(tmp_path, workers):
    """Fault B11, pytorch/pytorch#5059: every worker, or every rank, draws the same random numbers."""
    for name in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        for number in range(6 if name.startswith("train") else 1):
            images.picture(0, 0, (64, 48)).save(tmp_path / "tree" / name / f"{number}.png")
    packed(tmp_path / "tree", tmp_path / "made")
    crops = [
        image.numpy().tobytes()
        for rank in (0, 1)
        for inputs, _ in stream_of(tmp_path / "made", rank, loader_workers=workers).batches(0, 2)
        for image in inputs
    ]
    assert len(set(crops)) == len(crops) == 12


def test_half_of_the_images_are_flipped(tmp_path):
    """Each image is dark on the left and bright on the right."""
    source = tmp_path / "tree"
    ramp = Image.fromarray(np.tile(np.linspace(0, 255, 64, dtype=np.uint8), (64, 1)))
    for split, count in (("train", 200), ("val", 1)):
        for name in ("a", "b"):
            (source / split / name).mkdir(parents=True)
            for number in range(count):
                ramp.save(source / split / name / f"{number}.png")
    packed(source, tmp_path / "made")
    (batch,) = shown(tmp_path / "made")
    flipped = (batch[:, 0, :, 0] > batch[:, 0, :, -1]).all(dim=1)
    assert 0.4 < flipped.double().mean() < 0.6
    (evaluated,) = shown(tmp_path / "made", "test")
    assert (evaluated[:, 0, :, 0] < evaluated[:, 0, :, -1]).all()


def stream_of(folder: Path, rank: int = 0, **changes: Any) -> TrainingStream:
    return TrainingStream(small_trial(**{"batch_size_per_device": 3, **changes}), folder, rank, CPU)


def as_sets(batches: list[list[torch.Tensor]]) -> list[set[bytes]]:
    return [{image.numpy().tobytes() for part in parts for image in part.contiguous()} for parts in batches]


def test_two_ranks_see_the_images_that_one_sees_cropped_alike(made):
    alone = [
        [inputs]
        for inputs, _ in stream_of(made, world_size=1, batch_size_per_device=6, devices_per_node=1).batches(0, 5)
    ]
    both = [list(stream_of(made, rank).batches(0, 5)) for rank in (0, 1)]
    together = [[mine[0], theirs[0]] for mine, theirs in zip(*both, strict=True)]
    assert as_sets(together) == as_sets(alone)
    assert not as_sets([[both[0][0][0]]])[0] & as_sets([[both[1][0][0]]])[0]


def test_any_number_of_workers_delivers_the_same_images(made):
    alone = list(stream_of(made).batches(2, 3))
    for workers in (1, 2):
        for mine, theirs in zip(alone, stream_of(made, loader_workers=workers).batches(2, 3), strict=True):
            assert all(map(torch.equal, mine, theirs))


def test_an_image_is_cropped_otherwise_in_each_epoch_of_a_stream(made):
    steps = 3
    epochs = [list(stream_of(made).batches(epoch * steps, steps)) for epoch in range(2)]
    rows = [np.concatenate(training_indices(18, 3, 0, 2, 0, epoch)).tolist() for epoch in range(2)]
    seen = [
        dict(zip(of_epoch, torch.cat([inputs for inputs, _ in batches]), strict=True))
        for of_epoch, batches in zip(rows, epochs, strict=True)
    ]
    both = seen[0].keys() & seen[1].keys()
    assert both
    assert not any(torch.equal(seen[0][index], seen[1][index]) for index in both)


def test_so_many_samples_are_spread_evenly_over_the_classes(made):
    for limit in (3, 6, 9):
        stored = PackedImages(made, "train", limit)
        _, labels = stored[0, np.arange(limit)]
        assert np.bincount(labels.numpy()).tolist() == [limit // 3] * 3
    with pytest.raises(UserError, match=r"workload\.train_samples = 19: image_folder has 18; use at most that"):
        PackedImages(made, "train", 19)


def test_images_are_normalised_by_the_training_images(made):
    """What is not random comes out as (pixel / 255 - mean) / std."""
    manifest = read_manifest(made)
    ((inputs, _),) = open_loader(a_single_trial(), made, "test", CPU).batches([np.arange(6)])
    (pixels,) = shown(made, "test")
    expected = v2.functional.normalize(pixels.float() / 255, manifest.mean, manifest.std)
    assert torch.allclose(inputs, expected, atol=1e-5)


def test_the_memory_of_a_rank_does_not_grow_with_the_dataset(tmp_path):
    """200 images of 1 MB each: a small JPEG, and behind its end what no decoder reads."""
    content = io.BytesIO()
    images.picture(0, 0, (32, 32)).save(content, "JPEG")
    for name in ("train/a", "train/b", "val/a", "val/b"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        for number in range(100 if name.startswith("train") else 1):
            path = tmp_path / "tree" / name / f"{number}.jpg"
            path.write_bytes(content.getvalue())
            os.truncate(path, 2**20)
    packed(tmp_path / "tree", tmp_path / "made", replace(AS_THEY_ARE, images_per_file=64))
    stored = PackedImages(tmp_path / "made", "train")
    stored[0, np.arange(10)]
    before = psutil.Process().memory_info().rss
    for start in range(0, 200, 10):
        stored[0, np.arange(start, start + 10)]
    assert psutil.Process().memory_info().rss - before < 20 * 2**20


# Prepared by the rule's command, and trained


def prepare(
    dataset: str, source: Path | None, out: Path, before: Sequence[str] = (), **settings_: Any
) -> subprocess.CompletedProcess[str]:
    given_ = json.dumps(settings_ | ({} if source is None else {"source": str(source)}))
    command = [*before, sys.executable, str(SCRIPTS / "prepare.py"), dataset, f"--settings={given_}", f"--out={out}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageNet of 3 classes, from its archives, with short side 32 for a crop of 28."""
    folder = tmp_path_factory.mktemp("imagenet")
    images.archives(images.tree(folder / "tree", train=30, val=7), folder / "source")
    done = prepare("imagenet", folder / "source", folder / "data", classes=3, crop=28, short_side=32)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"{folder / 'data'}: 90 train, 21 test images of (3, 28, 28)\n")
    return folder / "data"


def test_a_resnet_learns_from_imagenets_archives_on_two_ranks(prepared, tmp_path):
    trial = small_trial(
        dataset="imagenet",
        model="resnet18",
        model_options={},
        optimizer={"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 1e-4},
        batch_size_per_device=15,
        steps=None,
        warmup_steps=None,
        epochs=3,
        warmup_epochs=1,
    )
    done = trained(trial, prepared, tmp_path)
    assert [segment.evaluation.samples for segment in done.record.segments] == [21] * 3
    assert [segment.samples for segment in done.record.segments] == [[45, 45]] * 3
    losses = done.steps.to_pandas().groupby("segment").loss.mean()
    assert losses[2] < losses[0] < 2 * np.log(3)


def test_an_image_that_was_damaged_since_ends_all_ranks_at_once(prepared, tmp_path):
    """Fault B9, facebookresearch/mmf#870: one rank dies of a bad JPEG, and its peers wait for it."""
    folder = damaged(prepared, tmp_path / "data", 40)
    trial = small_trial(dataset="imagenet", model="resnet18", model_options={}, steps=20, loader_workers=1)
    done = launch(trial, folder, tmp_path / "trial")
    assert done.returncode == 1
    assert "train-00000.images: train image 40 can't be read" in done.stderr
    assert done.leaves_nothing_behind()


def test_too_little_shared_memory_is_refused_before_it_hangs_on_packed_images(prepared, tmp_path):
    """Fault B10, pytorch/pytorch#5040: a container's small /dev/shm ends in a bus error, or hangs."""
    trial = small_trial(
        "single", 1, dataset="imagenet", model="resnet18", model_options={}, batch_size_per_device=90, loader_workers=5
    )
    script = 'mount -t tmpfs -o size=2m tmpfs /dev/shm && exec "$@"'
    in_small_shm = ["unshare", "-m", "sh", "-c", script, "sh"]
    if subprocess.run([*in_small_shm, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount: unshare -m as root")
    done = launch(trial, prepared, tmp_path / "trial", prefix=in_small_shm)
    assert done.returncode == 1
    assert (
        "loader_workers=5 need 2.2 MiB of shared memory, /dev/shm has 2.0 MiB free; set loader_workers: 0"
        in done.stderr
    )
    assert "docker run --shm-size" in done.stderr
    assert done.leaves_nothing_behind()


def test_accuracy_is_that_of_the_same_training_on_imagefolder(tmp_path):
    """The same initial weights, samples, order and crops; once packed, once through torchvision and PIL."""
    source = images.tree(tmp_path / "tree", train=60, val=30)
    packed(source, tmp_path / "made", replace(AS_THEY_ARE, augment=False, images_per_file=64))
    manifest = read_manifest(tmp_path / "made")
    trial = a_single_trial(
        dataset="image_folder", model="mlp", model_options={}, batch_size_per_device=20, optimizer=SGD, epochs=3
    )
    side = round(30 / (256 / 224))
    usual = v2.Compose(
        [
            v2.CenterCrop(side),
            v2.Resize((CROP, CROP)),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(manifest.mean, manifest.std),
        ]
    )
    train, val = (datasets.ImageFolder(str(source / split), usual) for split in ("train", "val"))

    def of_folder(folder: datasets.ImageFolder, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        pixels, labels = zip(*(folder[index] for index in indices), strict=True)
        return torch.stack(pixels), torch.tensor(labels)

    stream = TrainingStream(trial, tmp_path / "made", 0, CPU)
    test = open_loader(trial, tmp_path / "made", "test", CPU)
    ours, theirs = (Training(trial, manifest.samples, ALONE, stream.steps_per_epoch) for _ in range(2))
    steps = stream.steps_per_epoch * 3
    rows = np.concatenate([training_indices(180, 20, 0, 1, trial.seed, epoch) for epoch in range(3)])
    for batch, indices in zip(stream.batches(0, steps), rows, strict=True):
        other = of_folder(train, indices)
        assert torch.equal(batch[1], other[1])
        for training, one in ((ours, batch), (theirs, other)):
            training.gradients_of(one)
            training.update()
            training.replica.optimizer.zero_grad()
    accuracy = evaluate(test, ours, 20, ALONE).correct / 90
    pixels, labels = of_folder(val, np.arange(90))
    theirs.model.eval()
    their_accuracy = (theirs.model(pixels).argmax(dim=1) == labels).double().mean().item()
    assert accuracy > 0.8
    assert abs(accuracy - their_accuracy) < 0.03


SGD = {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.0}


def mounted(folder: Path, options: str) -> list[str]:
    """What runs a command with a file system of its own at a folder: a small one, or one that takes nothing."""
    folder.mkdir()
    script = f'mount -t tmpfs -o {options} tmpfs {folder} && "$@"; code=$?; find {folder} -name "*.partial"; exit $code'
    command = ["unshare", "-m", "sh", "-c", script, "sh"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount: unshare -m as root")
    return command


@pytest.mark.parametrize("dataset", ["image_folder", "synthetic"])
@pytest.mark.parametrize(
    ("options", "said"), [("size=24k", "No space left|no room on the disk"), ("ro", "Read-only file system")]
)
def test_a_disk_that_is_full_or_read_only_is_named_and_nothing_half_made_stays(tree, tmp_path, dataset, options, said):
    source = tree if dataset == "image_folder" else None
    given_ = {} if source else {"train_samples": 100, "test_samples": 10}
    done = prepare(dataset, source, tmp_path / "disk" / "made", mounted(tmp_path / "disk", options), **given_)
    assert done.returncode == 1
    assert re.fullmatch(
        rf"{tmp_path}/disk/\S*made.*: .*({said}).*; (run it again|mend that and run the same|free space there and run the same).*\n",
        done.stderr,
    )
    assert ".partial" not in done.stdout


def test_a_damaged_image_ends_the_preparation_with_its_path(tree, tmp_path):
    source, paths = spoiled(tree, tmp_path / "tree")
    done = prepare("image_folder", source, tmp_path / "data" / "made")
    assert done.returncode == 1
    assert all(str(path) in done.stderr for path in paths)
    assert "Traceback" not in done.stderr


def test_a_source_that_is_not_there_is_refused_with_what_is_needed(tmp_path):
    done = prepare("imagenet", tmp_path / "nowhere", tmp_path / "made")
    assert done.returncode == 1
    assert "ILSVRC2012_img_train.tar" in done.stderr
    assert list(tmp_path.iterdir()) == []
