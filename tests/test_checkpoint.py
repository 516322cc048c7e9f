"""Checkpoints: a training that is interrupted, however, and taken up again ends as if nothing had happened."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest
import torch
from launching import (
    ADADELTA,
    SERVER,
    TRAIN_SAMPLES,
    Trained,
    launch,
    measured,
    small_trial,
    starts_here,
    trained,
)

from dpscale.checkpoint import Checkpoints, Progress, random_state, set_random_state
from dpscale.course import leaves_something_timed
from dpscale.errors import UserError
from dpscale.launching.attempt import RESUMABLE
from dpscale.strategies.base import MODEL
from dpscale.trial import Trial
from dpscale.world import World

ALONE = World(0, 0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))
BATCH = 32  # over all ranks
STEPS_PER_EPOCH = TRAIN_SAMPLES // BATCH
IN_EPOCH_2, AT_ITS_START = (
    STEPS_PER_EPOCH + STEPS_PER_EPOCH // 2,
    STEPS_PER_EPOCH + 1,
)  # the step in which it is interrupted


def three_epochs(strategy: str = "ddp", devices: int = 2, **changes: object) -> Trial:
    """With dropout and an optimiser that remembers, so that random numbers and its state must be the same."""
    fields = {
        "epochs": 3,
        "warmup_epochs": 1,
        "steps": None,
        "warmup_steps": None,
        "batch_size_per_device": BATCH // devices,
        "model_options": {"dropout": True},
        "optimizer": ADADELTA,
        "checkpoint_interval_s": 0.0,
    }
    return small_trial(strategy, devices, **{**fields, **changes})


def losses(done: Trained) -> list[float]:
    """Of every step and rank."""
    table = done.steps.to_pandas().sort_values(["rank", "segment", "step"])
    return table.loss.tolist()


# The same end, however it was interrupted


@pytest.fixture(scope="module")
def straight(data: Path, tmp_path_factory: pytest.TempPathFactory):
    """Number of ranks -> the undisturbed training."""
    return {
        devices: measured(three_epochs(devices=devices), data, tmp_path_factory.mktemp(f"straight-{devices}"))
        for devices in (1, 2)
    }


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("step", [AT_ITS_START, IN_EPOCH_2], ids=["after-1", "after-1.5"])
@pytest.mark.parametrize(
    ("how", "exitcode"),
    [("launch_is_terminated", RESUMABLE), ("is_killed", 1), ("launch_is_killed", -signal.SIGKILL)],
)
def test_an_interrupted_training_ends_as_an_undisturbed_one(
    how: str, exitcode: int, step: int, devices: int, data: Path, tmp_path: Path, straight
):
    trial = three_epochs(devices=devices)
    again = {"inject": how, "rank": 0, "DPSCALE_TEST_STEP": str(step)}
    assert launch(trial, data, tmp_path, **again).returncode == exitcode
    assert not (tmp_path / "record.json").exists()
    record = measured(trial, data, tmp_path, **again).record
    expected = straight[devices].record
    assert [segment.num_steps for segment in record.segments] == [STEPS_PER_EPOCH] * 3
    assert losses(Trained(tmp_path)) == pytest.approx(losses(straight[devices]), abs=1e-6)
    for mine, theirs in zip(record.segments, expected.segments, strict=True):
        assert mine.evaluation.loss == pytest.approx(theirs.evaluation.loss, abs=1e-6)
        assert mine.evaluation.correct == theirs.evaluation.correct
    assert [segment.warmup for segment in record.segments] == [True, True, False]  # cut, or the first after the cut
    assert len(record.launch["attempts"]) == 2
    assert record.launch["attempts"][-1]["how"] == "ok"
    assert not (tmp_path / ".checkpoints").exists()


@pytest.mark.parametrize(
    ("launcher", "number", "loader_workers"),
    [
        ("spawn", "SIGTERM", 1),
        ("torchrun", "SIGTERM", 0),
        ("torchrun", "SIGUSR1", 1),
        *[("mpirun", "SIGUSR1", 0)] * starts_here("mpirun"),
    ],
)
def test_a_schedulers_signal_to_every_process_saves_the_training(
    launcher: str, number: str, loader_workers: int, data: Path, tmp_path: Path
):
    trial = three_epochs(launcher=launcher, loader_workers=loader_workers)
    how = {
        "inject": "everything_hears_a_signal",
        "rank": 1,
        "DPSCALE_TEST_STEP": str(IN_EPOCH_2),
        "DPSCALE_TEST_SIGNAL": number,
    }
    done = launch(trial, data, tmp_path, **how)
    assert done.returncode == RESUMABLE, done.log
    assert "stopped after 1 epochs and 1" in done.stderr
    assert "run the same command to go on" in done.stderr
    record = measured(trial, data, tmp_path, **how).record
    assert record.launch["attempts"][0]["how"].startswith("stopped after 1 epochs and 1")
    assert "stopped after 1 epochs" in (tmp_path / "trial.attempt-1.log").read_text()
    assert "resumed after 1 epochs" in (tmp_path / "trial.log").read_text()


ROWS = [
    ("ddp", {}),
    ("allreduce", {}),
    ("ring", {}),
    ("parameter_server", {}),
    ("local_sgd", {"period": 3}),
    ("local_sgd", {"period": 3, "synchronous_steps": 45}),
    ("zero", {}),
    ("fsdp", {}),
    ("deepspeed", {"stage": 1}),
    ("deepspeed", {"stage": 3}),
    ("independent", {}),
]


@pytest.mark.parametrize(
    ("strategy", "options"), ROWS, ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else value
)
def test_every_strategy_goes_on_as_if_nothing_had_happened(strategy: str, options: dict, data: Path, tmp_path: Path):
    trial = three_epochs(strategy, options=options)
    undisturbed = trained(trial, data, tmp_path / "straight")
    checkpoints = [f"--checkpoints={tmp_path / 'checkpoints'}", "--identity=this"]
    how = {"inject": "asks_to_stop", "more": checkpoints, "DPSCALE_TEST_STEP": str(IN_EPOCH_2)}
    trained(trial, data, tmp_path / "cut", exitcode=RESUMABLE, **how)
    done = trained(trial, data, tmp_path / "cut", **how)
    assert "resumed after 1 epochs" in done.log or strategy == "independent"
    assert losses(done) == pytest.approx(losses(undisturbed), abs=1e-6)


def test_a_row_that_can_not_go_on_says_so_and_starts_again(data: Path, tmp_path: Path):
    trial = three_epochs("ddp", options={"comm_hook": "powersgd"})
    done = trained(trial, data, tmp_path, more=[f"--checkpoints={tmp_path / 'checkpoints'}", "--identity=this"])
    assert "no checkpoints: PowerSGD" in done.log
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "deepspeed"])
def test_a_checkpoint_holds_the_whole_model_under_the_users_own_names(strategy: str, data: Path, tmp_path: Path):
    from dpscale import evaluation
    from dpscale.training import Training
    from dpscale.workloads.loading import TrainingStream, open_loader

    trial = three_epochs(strategy, options={"stage": 3} if strategy == "deepspeed" else {})
    checkpoints = Checkpoints(tmp_path / "checkpoints", "this")
    more = [f"--checkpoints={checkpoints.folder}", "--identity=this"]
    done = trained(trial, data, tmp_path, more=more)
    (second, folder), _ = checkpoints.found(print)
    assert (second.segment, second.step) == (2, 0)
    state = torch.load(folder / MODEL, weights_only=True)
    if strategy == "ddp":  # and nothing else holds them: libraries write shards of their own
        assert torch.load(folder / "replica-0.pt", weights_only=True).keys() == {"optimizer"}

    single = three_epochs("single", devices=1)
    stream = TrainingStream(single, data, 0, ALONE.device)
    plain = Training(single, stream.samples, ALONE, stream.steps_per_epoch)
    assert state.keys() == plain.plain_model.state_dict().keys()
    plain.plain_model.load_state_dict(state)
    found = evaluation.evaluate(open_loader(single, data, "test", ALONE.device), plain, 32, ALONE)
    assert found.correct == done.record.segments[1].evaluation.correct


# Whole or not there; this trial's or not taken


def saves_forever(folder: Path, begins: Event) -> None:
    checkpoints = Checkpoints(folder, "this")
    for step in itertools.count():
        checkpoints.save(Progress(step % 7, step, 0), write_ones, ALONE)
        begins.set()  # with the first one there, however slow the disk is


def write_ones(folder: Path) -> None:
    torch.save(torch.ones(2**18), folder / "weights.pt")


def test_the_file_under_the_final_name_is_whole_however_often_the_writer_is_killed(tmp_path: Path):
    seeds, found = random.Random(0), 0
    for _ in range(50):
        begins = SERVER.Event()
        writer = SERVER.Process(target=saves_forever, args=(tmp_path, begins))
        writer.start()
        assert begins.wait(60)
        time.sleep(seeds.uniform(0.0, 0.15))
        writer.kill()
        writer.join()
        for folder in tmp_path.glob("epoch-*"):
            Checkpoints(tmp_path, "this").check(folder)
            assert torch.load(folder / "weights.pt", weights_only=True).sum() == 2**18
            found += 1
    assert found >= 50


def saved(folder: Path, *progress: Progress, identity: str = "this") -> Checkpoints:
    checkpoints = Checkpoints(folder, identity)
    for number, reached in enumerate(progress):
        checkpoints.save(reached, lambda to, number=number: (to / "a.pt").write_text(str(number)), ALONE)
    return checkpoints


def test_the_newest_two_are_kept(tmp_path: Path):
    reached = [Progress(1, 0, 0), Progress(1, 7, 0), Progress(2, 0, 1)]
    checkpoints = saved(tmp_path, *reached)
    assert [progress for progress, _ in checkpoints.found(print)] == [reached[2], reached[1]]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_an_attempt_left_half_written_is_removed_by_the_next_save(tmp_path: Path):
    (tmp_path / ".partial-epoch-00001-step-0000003").mkdir()
    saved(tmp_path, Progress(2, 0, 0))
    assert [path.name for path in tmp_path.iterdir()] == [Progress(2, 0, 0).folder_name]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "a.pt").write_text("x"), "missing, cut or changed"),
        (lambda folder: (folder / "a.pt").unlink(), "missing, cut or changed"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "no whole checkpoint"),
        (lambda folder: (folder / "manifest.json").unlink(), "no whole checkpoint"),
    ],
    ids=["changed", "missing", "cut manifest", "no manifest"],
)
def test_one_that_is_not_whole_is_named_and_the_one_before_it_is_taken(spoil, words: str, tmp_path: Path):
    first, second = Progress(1, 0, 0), Progress(2, 0, 1)
    checkpoints = saved(tmp_path, first, second)
    spoil(tmp_path / second.folder_name)
    said: list[str] = []
    assert [progress for progress, _ in checkpoints.found(said.append)] == [first]
    assert words in said[0]
    assert second.folder_name in said[0]


def test_one_of_another_configuration_is_not_taken(tmp_path: Path):
    saved(tmp_path, Progress(1, 0, 0))
    with pytest.raises(UserError, match="of another configuration or code"):
        Checkpoints(tmp_path, "other").check(tmp_path / Progress(1, 0, 0).folder_name)


def test_a_full_disk_leaves_the_one_before_it(tmp_path: Path):
    checkpoints = saved(tmp_path, Progress(1, 0, 0))

    def no_room(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        checkpoints.save(Progress(2, 0, 0), no_room, ALONE)
    assert [progress.segment for progress, _ in checkpoints.found(print)] == [1]


def test_another_configuration_starts_again_and_says_so(data: Path, tmp_path: Path):
    trial = three_epochs(devices=1)
    how = {"inject": "is_killed", "rank": 0, "DPSCALE_TEST_STEP": str(IN_EPOCH_2)}
    assert launch(trial, data, tmp_path, **how).returncode == 1
    done = measured(three_epochs(devices=1, seed=1), data, tmp_path, **how)
    assert "of another configuration, code or data: deleted" in done.log
    assert "resumed" not in done.log
    assert len(done.record.launch["attempts"]) == 1


# What is timed


@pytest.mark.parametrize(
    ("progress", "left"),
    [
        (Progress(1, 0, 0), True),  # the third
        (Progress(1, 5, 0), True),
        (Progress(2, 0, 1), True),  # the second
        (Progress(2, 5, 1), True),
        (Progress(2, 0, 0), False),  # the second was the first after an earlier interruption
        (Progress(2, 5, 0), False),
    ],
)
def test_a_checkpoint_is_taken_only_if_an_untouched_epoch_is_timed(progress: Progress, left: bool):
    plans = [(True, 0, 20), (False, 20, 20), (False, 40, 20)]
    assert leaves_something_timed(plans, progress) is left


def test_the_only_timed_epoch_is_not_cut_in_two(data: Path, tmp_path: Path):
    trial = three_epochs(devices=1, epochs=2)
    how = {"inject": "launch_is_terminated", "rank": 0, "DPSCALE_TEST_STEP": str(IN_EPOCH_2)}
    assert launch(trial, data, tmp_path, **how).returncode == RESUMABLE
    done = measured(trial, data, tmp_path, **how)
    assert "no other would be left" in done.log
    assert [segment.warmup for segment in done.record.segments] == [True, False]


def test_the_time_of_checkpoints_is_in_a_column_of_its_own(data: Path, tmp_path: Path):
    record = measured(three_epochs(devices=2), data, tmp_path).record
    assert len(record.checkpoint_times_s) == 2  # after the last epoch there is nothing to go on with
    assert all(0 < time_s < 10 for time_s in record.checkpoint_times_s)


def test_random_numbers_go_on_where_they_were():
    def draw() -> list[float]:
        return [torch.rand(1).item(), float(np.random.rand()), random.random()]

    before = random_state()
    torch.save(before, path := Path(os.devnull))
    first = draw()
    set_random_state(before)
    assert draw() == first
    assert path
