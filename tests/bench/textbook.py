"""Ours against the textbook form of the same training (textbook_training.py), on real images.

Both sides train the same layers with the same optimiser and batch on the same number of samples, each from its own
launch; compared is the time of one epoch after a warm-up.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from common import SOURCE, Comparison, NotHere, Settings, launch, plan_one, prepare, run_python
from textbook_training import BATCH_SIZE, WARMUP_STEPS

from dpscale.launching.attempt import free_port
from dpscale.monitoring.monitor import usable_cpus
from dpscale.record import Record
from dpscale.trial import Trial

GOALS = {1: 1.1, 2: 2.5}  # processes -> at least so many times as fast
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def run(settings: Settings) -> Iterator[Comparison]:
    if not SOURCE.is_dir():
        raise NotHere(f"{SOURCE} is not there; Debian: apt install dataset-fashion-mnist")
    if settings.samples % (BATCH_SIZE * max(GOALS)):
        raise ValueError(f"--samples {settings.samples}: choose a multiple of {BATCH_SIZE * max(GOALS)}")
    data = prepare("fashion_mnist", settings.folder, source=str(SOURCE))
    images = unpack(settings.folder)
    for processes, goal in GOALS.items():
        our_threads = usable_cpus() if processes == 1 else max(1, usable_cpus() // processes)
        their_threads = our_threads if processes == 1 else None
        trial = plan_one(
            workload={"dataset": "fashion_mnist", "train_samples": settings.samples},
            strategies={"ddp": {}},
            topologies=[f"1x{processes}"],
            batch={"per_device": BATCH_SIZE},
            epochs=2,
            warmup_epochs=1,
            evaluate=False,
            threads_per_rank=our_threads,
        )
        pairs = []
        for number in range(settings.pairs):
            theirs_s = textbook_epoch_time_s(processes, settings.samples, their_threads, images)
            pairs.append((theirs_s, our_epoch_time_s(trial, data, settings.folder / f"ours-{processes}-{number}")))
        yield Comparison(
            name=f"textbook / ours, epoch time, {'one process' if processes == 1 else f'{processes} processes'}, "
            f"textbook with {'the same' if processes == 1 else 'its default'} threads",
            first="textbook, s per epoch",
            second="ours, s per epoch",
            pairs=pairs,
            goal=goal,
            goal_is="at least",
            facts={
                "trial": trial.id,
                "samples_per_epoch": settings.samples,
                "samples_of_the_whole_dataset": 60_000,
                "batch_size_per_process": BATCH_SIZE,
                "our_threads_per_process": our_threads,
                "textbook_threads_per_process": their_threads or f"torch's default: {torch.get_num_threads()}",
                "warmup": f"ours: a whole epoch; textbook: {WARMUP_STEPS} steps",
            },
        )


def our_epoch_time_s(trial: Trial, data: Path, folder: Path) -> float:
    (segment,) = Record.read(launch(trial, data, folder)).timed_segments
    if sum(segment.samples) != trial.train_samples:
        raise RuntimeError(f"our epoch had {sum(segment.samples)} samples instead of {trial.train_samples}")
    starts, ends = zip(*segment.windows_s, strict=True)
    return max(ends) - min(starts)


def textbook_epoch_time_s(processes: int, samples: int, threads: int | None, images: Path) -> float:
    """Started as from a user's shell: no variable says how many threads."""
    environment = {name: value for name, value in os.environ.items() if name not in THREAD_SETTINGS}
    flags = [f"--images={images}", f"--samples={samples}", f"--processes={processes}", f"--port={free_port()}"]
    if threads is not None:
        flags.append(f"--threads={threads}")
    return float(run_python([Path(__file__).with_name("textbook_training.py"), *flags], env=environment))


def unpack(folder: Path) -> Path:
    """The dataset's files where torchvision's class looks for them."""
    raw = folder / "torchvision" / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for path in SOURCE.glob("*-ubyte*"):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (raw / path.name.removesuffix(".gz")).write_bytes(content)
    return folder / "torchvision"
