"""The loaders against torchvision's: packed images against ImageFolder, arrays against FashionMNIST. One process, one thread.

Both sides deliver normalised float32 batches of the same images in random order. The JPEGs are of ImageNet's usual size,
500x375, cut from the photographs that come with scikit-learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from common import Comparison, NotHere, Settings, plan_one, prepare
from PIL import Image
from textbook import SOURCE, unpack
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torchvision import datasets, transforms

from dpscale.workloads.loading import Loader, open_loader, training_indices

SIZE = (500, 375)
CROP = 224
BATCH_SIZE = 64
PACKED = {"short side 256": ({"short_side": 256}, 2.5), "bytes untouched": ({}, 1.3)}  # settings, goal
ARRAYS_GOAL = 20.0
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def run(settings: Settings) -> Iterator[Comparison]:
    torch.set_num_threads(1)
    count = max(BATCH_SIZE, settings.samples // 16)
    source = photographs(settings.folder / "source", count)
    usual = transforms.Compose(
        [
            transforms.RandomResizedCrop(CROP),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    theirs = datasets.ImageFolder(str(source / "train"), usual)
    size = sum(path.stat().st_size for path in source.glob("train/*/*")) / count
    for name, (how, goal) in PACKED.items():
        data = prepare("image_folder", settings.folder / name, source=str(source), crop=CROP, **how)
        trial = plan_one(workload={"dataset": "image_folder", "model": "resnet18"}, **ANY)
        ours = open_loader(trial, data, "train", torch.device("cpu"))
        yield Comparison(
            name=f"packed images / ImageFolder, images per second, {name}",
            first="packed, random crop and flip, images/s",
            second="ImageFolder with PIL, RandomResizedCrop, flip, ToTensor, Normalize, images/s",
            pairs=[(our_rate(ours, epoch), textbook_rate(theirs)) for epoch in range(settings.pairs)],
            goal=goal,
            goal_is="at least",
            facts={"images": count, "mean_bytes_of_a_JPEG": round(size), "batch_size": BATCH_SIZE},
        )
    if not SOURCE.is_dir():
        raise NotHere(f"{SOURCE} is not there; Debian: apt install dataset-fashion-mnist")
    yield of_arrays(settings)


ANY = {"strategies": {"single": {}}, "topologies": ["1x1"], "batch": {"per_device": BATCH_SIZE}, "epochs": 2}


def of_arrays(settings: Settings) -> Comparison:
    data = prepare("fashion_mnist", settings.folder, source=str(SOURCE))
    trial = plan_one(workload={"dataset": "fashion_mnist", "train_samples": settings.samples}, **ANY)
    ours = open_loader(trial, data, "train", torch.device("cpu"))
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.2860,), (0.3530,))])
    whole = datasets.FashionMNIST(unpack(settings.folder), train=True, transform=transform)
    theirs = torch.utils.data.Subset(whole, range(settings.samples))
    return Comparison(
        name="loader of fashion_mnist / torchvision's FashionMNIST, samples per second",
        first="ours, samples/s",
        second="FashionMNIST with ToTensor, Normalize, samples/s",
        pairs=[(our_rate(ours, epoch), textbook_rate(theirs)) for epoch in range(settings.pairs)],
        goal=ARRAYS_GOAL,
        goal_is="at least",
        facts={"samples": settings.samples, "batch_size": BATCH_SIZE},
    )


def our_rate(loader: Loader, epoch: int) -> float:
    indices = list(training_indices(loader.num_samples, BATCH_SIZE, 0, 1, 0, epoch))
    return rate(lambda: loader.batches(indices, [epoch] * len(indices)))


def textbook_rate(dataset: TorchDataset) -> float:
    return rate(lambda: iter(DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)))


def rate(batches: Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]]) -> float:
    """Samples per second of one epoch."""
    started_s, samples = time.perf_counter(), 0
    for _, labels in batches():
        samples += len(labels)
    return samples / (time.perf_counter() - started_s)


def photographs(folder: Path, count: int) -> Path:
    """train/ and val/ with two classes: parts of two photographs, enlarged."""
    from sklearn.datasets import load_sample_images

    generator = np.random.default_rng(0)
    for name, pixels in zip(("china", "flower"), load_sample_images().images, strict=True):
        photograph = Image.fromarray(pixels)
        for split, number_of_split in (("train", count // 2), ("val", 1)):
            (folder / split / name).mkdir(parents=True)
            for number in range(number_of_split):
                width = int(generator.integers(SIZE[0] // 2, SIZE[0], endpoint=True))
                height = width * SIZE[1] // SIZE[0]
                left = int(generator.integers(0, photograph.width - width, endpoint=True))
                top = int(generator.integers(0, photograph.height - height, endpoint=True))
                part = photograph.resize(SIZE, Image.Resampling.BICUBIC, box=(left, top, left + width, top + height))
                part.save(folder / split / name / f"{number}.jpg", quality=95)
    return folder
