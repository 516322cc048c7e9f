"""The row `horovod` and its launcher: against Horovod where it is installed, else against a stand-in with its interface."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import SGD, launch, measured, small_trial, standins, starts_here

from dpscale.strategies import STRATEGIES
from dpscale.trial import Trial

IS_INSTALLED = starts_here("horovodrun") and STRATEGIES["horovod"].needs(small_trial("horovod")) is None
HOROVOD = {} if IS_INSTALLED else standins()  # the variables of a launch
TEN_STEPS = {"batch_size_per_device": 16, "steps": 10, "warmup_steps": 0, "evaluate": False}


def a_trial(**changes: Any) -> Trial:
    return small_trial("horovod", **{"launcher": "horovodrun", **TEN_STEPS, **changes})


def learned(trial: Trial, data: Path, folder: Path, **variables: str) -> np.ndarray:
    done = measured(trial, data, folder, inject="keep_weights", **variables)
    return np.concatenate([np.asarray(parameter) for parameter in done.found("weights")[0]])


@pytest.mark.parametrize(
    ("options", "optimizer", "tolerance"),
    [
        ({}, {"name": "adam", "lr": 1e-3, "momentum": None, "weight_decay": 0.01}, 1e-4),
        ({"compression": "fp16"}, {**SGD, "momentum": 0.9, "clip_norm": 0.5}, 5e-4),  # gradients have 11 bits
    ],
    ids=["adam", "fp16-clipped"],
)
def test_ranks_learn_what_one_process_learns(
    options: dict, optimizer: dict, tolerance: float, data: Path, tmp_path: Path
):
    """Also with a first step that counts as such (Adam, weight decay), and with gradients that are clipped whole."""
    alone = small_trial("single", 1, **{**TEN_STEPS, "batch_size_per_device": 32}, optimizer=optimizer)
    expected = learned(alone, data, tmp_path / "one")
    found = learned(a_trial(options=options, optimizer=optimizer), data, tmp_path / "two", **HOROVOD)
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def test_a_rank_that_fails_under_horovodrun_ends_all_and_is_named(data: Path, tmp_path: Path):
    done = launch(a_trial(), data, tmp_path, inject="raises", rank=1, **HOROVOD)
    assert done.returncode == 1
    assert "rank 1 failed with RuntimeError: planted in the third step" in done.stderr
    assert re.search(r"\] \[rank 1\] RuntimeError: planted in the third step$", done.log, re.MULTILINE)
    assert "<stderr>" not in done.log  # as horovodrun writes it
    assert done.leaves_nothing_behind()


def test_another_launcher_would_leave_every_rank_alone_and_is_refused(data: Path, tmp_path: Path):
    done = launch(a_trial(launcher="spawn"), data, tmp_path, **HOROVOD)
    assert done.returncode == 1
    assert "Horovod sees 1 of 2 ranks" in done.stderr
    assert "use horovodrun" in done.stderr


def needs(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str | None:
    """What the row says where the only packages are those of `folder`."""
    monkeypatch.setattr("sys.path", [str(folder)])
    importlib.invalidate_caches()
    return STRATEGIES["horovod"].needs(small_trial("horovod"))


def test_an_absent_horovod_and_one_without_pytorch_have_reasons_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert needs(monkeypatch, tmp_path) == "needs Horovod: not installed (make horovod)"
    (tmp_path / "horovod" / "torch").mkdir(parents=True)
    (tmp_path / "horovod" / "__init__.py").write_text("raise ImportError('it must not be imported to be found')")
    assert needs(monkeypatch, tmp_path) == "needs Horovod with PyTorch: this one was built without it (make horovod)"
    (tmp_path / "horovod" / "torch" / "mpi_lib_v2.cpython-311-x86_64-linux-gnu.so").touch()
    assert needs(monkeypatch, tmp_path) is None
