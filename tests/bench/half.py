"""What half precision is worth where the CPU has units for it: bf16 in channels-last, against fp32 and the textbook form."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from common import Comparison, NotHere, Settings, plan_one, prepare
from strategies import RANKS, compared, planned
from textbook import SOURCE, our_epoch_time_s, textbook_epoch_time_s, unpack
from textbook_training import BATCH_SIZE

LEAST_OF_FP32 = 1.7
LEAST_OF_TEXTBOOK = 4.0
HALF = {"precision": "bf16", "channels_last": True}
# What half precision leaves as it is (dropout's random numbers, calls) weighs less in a larger batch, which it has room for.
BATCH_SIZE_PER_RANK = 512


def run(settings: Settings) -> Iterator[Comparison]:
    if not torch.cpu._is_avx512_bf16_supported():
        raise NotHere("needs a CPU with bf16 units (AVX512_BF16 or AMX)")
    if not SOURCE.is_dir():
        raise NotHere(f"{SOURCE} is not there; Debian: apt install dataset-fashion-mnist")
    data = prepare("fashion_mnist", settings.folder, source=str(SOURCE))
    steps = max(2, settings.steps * BATCH_SIZE // BATCH_SIZE_PER_RANK)
    for ranks in (1, RANKS):
        fp32, bf16 = (
            planned(
                {"ddp": options},
                ranks,
                workload={"dataset": "fashion_mnist"},
                batch={"per_device": BATCH_SIZE_PER_RANK},
                steps=steps + 1,
            )
            for options in ({}, HALF)
        )
        yield compared(
            settings,
            data,
            (bf16, None),
            (fp32, None),
            steps=steps,
            name=f"ConvNet, {ranks} rank{'s' if ranks > 1 else ''} x {BATCH_SIZE_PER_RANK}: bf16 in channels-last / fp32, throughput",
            goal=LEAST_OF_FP32,
        )
    yield against_the_textbook(settings)


def against_the_textbook(settings: Settings) -> Comparison:
    data = prepare("fashion_mnist", settings.folder, source=str(SOURCE))
    images = unpack(settings.folder)
    trial = plan_one(
        workload={"dataset": "fashion_mnist", "train_samples": settings.samples},
        strategies={"ddp": HALF},
        topologies=[f"1x{RANKS}"],
        batch={"per_device": BATCH_SIZE},
        epochs=2,
        warmup_epochs=1,
        evaluate=False,
    )
    pairs = [
        (
            textbook_epoch_time_s(RANKS, settings.samples, None, images),
            our_epoch_time_s(trial, data, settings.folder / f"half-{number}"),
        )
        for number in range(settings.pairs)
    ]
    return Comparison(
        name="textbook / ours in bf16 and channels-last, epoch time, 2 processes, textbook with its default threads",
        first="textbook, s per epoch",
        second="ours, s per epoch",
        pairs=pairs,
        goal=LEAST_OF_TEXTBOOK,
        goal_is="at least",
        facts={"trial": trial.id, "samples_per_epoch": settings.samples},
    )
