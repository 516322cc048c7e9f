"""Batches: which samples each rank sees, and how they reach its device. Vectorised: no Python per sample, but for the
decoding of packed images.

Sharding is defined on global batches: batch k of an epoch is the same set of samples for every world size, and rank r
takes the r-th of N equal parts of it. So N ranks x b samples train on exactly what one rank x N b samples would.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from dpscale.errors import UserError
from dpscale.launching.attempt import STOP_SIGNALS, die_with_parent
from dpscale.trial import Trial
from dpscale.workloads.arrays import open_split
from dpscale.workloads.packed import PackedImages
from dpscale.workloads.prepared import read_manifest
from dpscale.workloads.samples import Rows

PREFETCH_FACTOR = 2  # batches that each worker is ahead
SHARED_MEMORY = Path("/dev/shm")  # where workers put them
# on the rank's device: images (b, C, H, W) float32 and labels (b,) int64, or tokens and labels (b, context) int64
Batch = tuple[torch.Tensor, torch.Tensor]


def training_indices(
    num_samples: int, batch_size_per_rank: int, rank: int, world_size: int, seed: int, epoch: int
) -> np.ndarray:
    """Indices (steps, batch_size_per_rank) of one rank for one epoch: shuffled anew each epoch, ranks disjoint.

    The last samples that fill no whole global batch are left out of the epoch, others in each: unequal parts of a
    batch would bias the mean gradient.
    """
    global_batch_size = batch_size_per_rank * world_size
    steps = num_samples // global_batch_size
    order = np.random.default_rng((seed, epoch)).permutation(num_samples)[: steps * global_batch_size]
    return order.reshape(steps, world_size, batch_size_per_rank)[:, rank]


def evaluation_indices(num_samples: int, batch_size: int, rank: int, world_size: int) -> list[np.ndarray]:
    """Batches of one rank, of at most batch_size: over all ranks every sample exactly once, for any world size."""
    start, end = num_samples * rank // world_size, num_samples * (rank + 1) // world_size
    return [np.arange(first, min(first + batch_size, end)) for first in range(start, end, batch_size)]


def most_evaluation_batches(num_samples: int, batch_size: int, world_size: int) -> int:
    """The number of batches of the rank that has most of them."""
    return max(len(evaluation_indices(num_samples, batch_size, rank, world_size)) for rank in range(world_size))


class Arrays(TorchDataset):
    """A whole batch per access: DataLoader hands over the indices of a batch instead of one."""

    def __init__(self, inputs: np.ndarray, labels: np.ndarray) -> None:
        self.inputs, self.labels = torch.from_numpy(inputs), torch.from_numpy(labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Rows) -> Batch:
        _, indices = rows
        chosen = torch.from_numpy(indices)
        return self.inputs.index_select(0, chosen), self.labels.index_select(0, chosen)


def _end_with_rank(rank_pid: int, worker: int) -> None:
    """A worker notices by itself only after seconds that its rank was killed, or never if that was before its start.

    A scheduler's signal reaches it, too: it is the rank's, which saves itself and needs more batches until then.
    """
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(parent=rank_pid)


class Loader:
    """Batches of one split for one rank, made ready on its device: images are normalised, tokens need nothing."""

    def __init__(
        self,
        samples: Arrays | PackedImages,
        *,
        mean: list[float],
        std: list[float],
        device: torch.device,
        workers: int,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        """`mean` and `std` of each channel of images, of values in [0, 1]; tokens have none."""
        self.samples = samples
        self.num_samples = len(samples)
        self.device = device
        self.workers = workers
        self.memory_format = memory_format
        self.normalises = bool(mean)
        shape = (1, -1, 1, 1)
        std = [value or 1.0 for value in std]  # a channel that never varies
        # (x / 255 - mean) / std as one multiplication and one addition
        self.scale = (1 / (255 * torch.tensor(std))).reshape(shape).to(device)
        self.shift = (-torch.tensor(mean) / torch.tensor(std)).reshape(shape).to(device)

    def batches(self, indices: list[np.ndarray], epochs: list[int] | None = None) -> Iterator[Batch]:
        """One batch for each row of `indices`, in order. `epochs`: of each row, where samples differ from one to the next."""
        cuda = self.device.type == "cuda"
        loader = DataLoader(
            self.samples,
            batch_size=None,
            sampler=list(zip(epochs or [0] * len(indices), indices, strict=True)),
            num_workers=self.workers,
            pin_memory=cuda,
            worker_init_fn=partial(_end_with_rank, os.getpid()),
            prefetch_factor=PREFETCH_FACTOR if self.workers else None,
            generator=torch.Generator(),  # torch's own would move on with each loader: a resumed epoch has one more
        )
        for inputs, labels in loader:
            on_device = inputs.to(self.device, non_blocking=True)
            yield self._ready(on_device), labels.to(self.device, non_blocking=True).to(torch.int64)

    def _ready(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.normalises:
            return inputs.to(torch.int64)
        values = inputs.to(torch.float32, memory_format=self.memory_format)
        return torch.addcmul(self.shift, values, self.scale, out=values)  # in place: fresh pages cost more than the sum


def check_shared_memory(trial: Trial, sample_bytes: int) -> None:
    """Refuse what would hang: a worker that finds no room for a batch says so in its own thread and delivers nothing.

    Raises:
        UserError: the batches under way at one time don't fit into this machine's shared memory.
    """
    batches = trial.ranks_per_node * (trial.loader_workers * PREFETCH_FACTOR + 1)
    needed, free = batches * trial.batch_size_per_rank * sample_bytes, shutil.disk_usage(SHARED_MEMORY).free
    if needed > free:
        raise UserError(
            f"{trial.id}: loader_workers={trial.loader_workers} need {needed / 2**20:.1f} MiB of shared memory, "
            f"{SHARED_MEMORY} has {free / 2**20:.1f} MiB free; set loader_workers: 0, or give the container more "
            "(docker run --shm-size=1g)"
        )


def open_loader(trial: Trial, folder: Path, split: str, device: torch.device) -> Loader:
    """The loader of a prepared split, cut to the trial's number of samples."""
    manifest = read_manifest(folder)
    limit = trial.train_samples if split == "train" else trial.test_samples
    samples = (
        Arrays(*open_split(folder, split, limit))
        if manifest.packing is None
        else PackedImages(folder, split, limit, trial.seed)
    )
    if trial.loader_workers and SHARED_MEMORY.exists():
        check_shared_memory(trial, sum(part.nbytes for part in samples[0, np.zeros(1, np.int64)]))
    return Loader(
        samples,
        mean=manifest.mean,
        std=manifest.std,
        device=device,
        workers=trial.loader_workers,
        memory_format=memory_format(trial),
    )


def memory_format(trial: Trial) -> torch.memory_format:
    """Of images, and of the weights of convolutions."""
    return torch.channels_last if trial.channels_last else torch.contiguous_format


class TrainingStream:
    """The training split as one rank sees it: epoch after epoch, cut into segments of steps."""

    def __init__(self, trial: Trial, folder: Path, rank: int, device: torch.device) -> None:
        self.trial, self.rank = trial, rank
        self.samples = read_manifest(folder).samples
        self.loader = open_loader(trial, folder, "train", device)
        global_batch_size = trial.batch_size_per_rank * trial.world_size
        self.steps_per_epoch = self.loader.num_samples // global_batch_size
        if self.steps_per_epoch == 0:
            raise UserError(
                f"{trial.id}: {self.loader.num_samples} training samples do not fill one global batch of "
                f"{global_batch_size}; use a smaller batch or more samples"
            )

    def batches(self, first_step: int, num_steps: int) -> Iterator[Batch]:
        """The batches of `num_steps` steps from `first_step` on, which is counted from the start of the training."""
        trial, rows, epochs = self.trial, list[np.ndarray](), list[int]()
        while len(rows) < num_steps:
            epoch, offset = divmod(first_step + len(rows), self.steps_per_epoch)
            indices = training_indices(
                self.loader.num_samples, trial.batch_size_per_rank, self.rank, trial.world_size, trial.seed, epoch
            )
            rows.extend(indices[offset : offset + num_steps - len(rows)])
            epochs.extend([epoch] * (len(rows) - len(epochs)))
        return self.loader.batches(rows, epochs)
