"""What is trained here really learns: test accuracy of the ConvNet on Fashion-MNIST, by one process and by two."""

from __future__ import annotations

from collections.abc import Iterator

from common import SOURCE, Comparison, NotHere, Settings, launch, plan_one, prepare

from dpscale.record import Record

GOAL_PERCENT = 88
EPOCHS = 5
BATCH_SIZE = 64  # of each process
TEST_SAMPLES = 10_000


def run(settings: Settings) -> Iterator[Comparison]:
    if not SOURCE.is_dir():
        raise NotHere(f"{SOURCE} is not there; Debian: apt install dataset-fashion-mnist")
    data = prepare("fashion_mnist", settings.folder, source=str(SOURCE))
    for processes, strategy in ((1, "single"), (2, "ddp")):
        trial = plan_one(
            workload={
                "dataset": "fashion_mnist",
                "train_samples": settings.learns_from,
                "test_samples": min(TEST_SAMPLES, settings.learns_from),
            },
            strategies={strategy: {}},
            topologies=[f"1x{processes}"],
            batch={"per_device": BATCH_SIZE},
            epochs=EPOCHS,
        )
        record = Record.read(launch(trial, data, settings.folder / f"accuracy-{processes}"))
        evaluations = [segment.evaluation for segment in record.segments if segment.evaluation is not None]
        percent = [100 * (evaluation.correct or 0) / evaluation.predictions for evaluation in evaluations]
        yield Comparison(
            name=f"accuracy within {EPOCHS} epochs over {GOAL_PERCENT} %, {processes} rank{'s' * (processes > 1)}",
            first="test accuracy, the best of the epochs, in %",
            second="the goal, in %",
            pairs=[(max(percent), float(GOAL_PERCENT))],
            says="first - second",
            unit="points",
            goal=0,
            goal_is="at least",
            facts={
                "trial": trial.id,
                "training_samples": settings.learns_from,
                "test_samples": evaluations[-1].samples,
                "accuracy_percent_by_epoch": percent,
                "top5_percent": 100 * (evaluations[-1].correct_top5 or 0) / evaluations[-1].predictions,
                "batch_size_per_rank": BATCH_SIZE,
                "optimizer": dict(trial.optimizer),
            },
        )
