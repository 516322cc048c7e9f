"""The row `apex`. NVIDIA apex needs GPUs and its amp is no longer made: a stand-in with its interface checks the calls."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from launching import SGD, STANDINS, measured, small_trial, standins

from dpscale.strategies import STRATEGIES
from dpscale.strategies.apex import ApexReplica, Options, installed
from dpscale.strategies.base import Asked, Setup

# What is installed under the name


def a_package(folder: Path, *files: str) -> None:
    for file in ("__init__.py", *files):
        path = folder / "apex" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise ImportError('it must not be imported to be found')")


NVIDIAS = ("multi_tensor_apply/__init__.py", "optimizers/__init__.py", "normalization/__init__.py")
OLD_NVIDIAS = (*NVIDIAS, "amp/__init__.py", "parallel/__init__.py", "parallel/distributed.py")


def asked(device: str, precision: str, optimizer: str) -> Asked:
    return Asked(
        device=device,
        precision=precision,
        optimizer=optimizer,
        compile=False,
        channels_last=False,
        explain=False,
        fewest_devices=2,
    )


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (None, "not installed; use NVIDIA's image"),
        ((), "__init__.py is another package of that name; pip uninstall apex, then use"),
        (("views.py", "lib/libapex.py"), "is another package of that name"),
        (NVIDIAS, "this one is newer and has no amp and no DistributedDataParallel; use NVIDIA's image"),
    ],
    ids=["absent", "empty", "the web toolkit", "NVIDIA's after 25.05"],
)
def test_each_apex_that_will_not_do_is_told_apart_with_its_remedy(
    files: tuple[str, ...] | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if files is not None:
        a_package(tmp_path, *files)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    found = installed(fused_sgd=False)
    assert found is not None
    assert found.startswith("needs NVIDIA apex <= 25.05: ")
    assert reason in found


def test_nvidias_apex_up_to_25_05_will_do_and_fused_sgd_needs_its_extensions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    a_package(tmp_path, *OLD_NVIDIAS)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    assert installed(fused_sgd=False) is None
    assert "built without" in (installed(fused_sgd=True) or "")
    (tmp_path / "amp_C.py").touch()
    importlib.invalidate_caches()
    assert installed(fused_sgd=True) is None


def test_a_cpu_is_said_before_any_package():
    assert STRATEGIES["apex"].needs(small_trial("apex")) == "needs a CUDA device: NVIDIA apex has no CPU form"


# What contradicts itself


@pytest.mark.parametrize(
    ("options", "precision", "optimizer", "device", "refusal"),
    [
        ({"opt_level": "O1"}, "fp32", "sgd", "cuda", "opt_level = 'O1' contradicts precision fp32, which is O0;"),
        (
            {"opt_level": "O0"},
            "fp16",
            "sgd",
            "cuda",
            "opt_level = 'O0' contradicts precision fp16, which is O1, O2, O3;",
        ),
        (
            {"fused_sgd": True},
            "fp32",
            "adam",
            "cuda",
            "fused_sgd = True: the optimizer is adam; use optimizer.name: sgd",
        ),
        ({"sync_bn": True}, "fp32", "sgd", "cpu", "sync_bn = True: batch norm over ranks works on GPUs only"),
    ],
)
def test_contradictions_are_refused_before_any_job(
    options: dict, precision: str, optimizer: str, device: str, refusal: str
):
    assert (STRATEGIES["apex"].refuses(Options(**options), asked(device, precision, optimizer)) or "").startswith(
        refusal
    )


@pytest.mark.parametrize(
    ("precision", "options", "level"),
    [("fp32", {}, "O0"), ("fp16", {}, "O1"), ("fp16", {"opt_level": "O2"}, "O2"), ("fp16", {"opt_level": "O3"}, "O3")],
)
def test_the_level_is_the_one_given_or_that_of_the_precision(precision: str, options: dict, level: str):
    chosen = Options(**options)
    assert STRATEGIES["apex"].refuses(chosen, asked("cuda", precision, "sgd")) is None
    assert chosen.level(precision) == level


# What it calls


@pytest.fixture
def apex(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(STANDINS))
    yield importlib.import_module("apex")
    for name in [name for name in sys.modules if name.partition(".")[0] == "apex"]:
        del sys.modules[name]


def a_replica(precision: str = "fp16", **options: Any) -> ApexReplica:
    torch = pytest.importorskip("torch")
    from dpscale.world import World

    torch.manual_seed(0)
    world = World(rank=0, local_rank=0, node_rank=0, size=1, devices_per_node=1, device=torch.device("cpu"))
    setup = Setup(
        model=torch.nn.Linear(3, 1),
        options=Options(**options),
        optimizer={**SGD, "momentum": 0.9},
        precision=precision,
        batch_size_per_rank=4,
        world=world,
    )
    return ApexReplica(setup)


def test_amp_gets_model_and_optimizer_together_and_ddp_the_model_that_it_returns(apex: ModuleType):
    replica = a_replica(opt_level="O2", sync_bn=True, fused_sgd=True)
    assert apex.calls == [
        ("convert_syncbn_model",),
        ("initialize", "O2", "FusedSGD"),
        ("DistributedDataParallel",),
    ]
    assert type(replica.model).__module__ == "apex.parallel.distributed"
    assert replica.plain_model is replica.model.module


def test_losses_are_scaled_for_backward_only(apex: ModuleType):
    import torch

    replica, inputs = a_replica(), torch.ones(4, 3)
    replica.backward(replica.model(inputs).mean())
    assert apex.calls[-1] == ("scale_loss",)
    assert [parameter.grad.flatten().tolist() for parameter in replica.model.parameters()] == [[1, 1, 1], [1]]


def test_a_step_whose_gradients_are_not_finite_is_skipped_and_the_next_one_is_not(apex: ModuleType):
    import torch

    replica = a_replica()
    before = [weight.clone() for weight in replica.weights()]
    for inputs, moves in ((torch.full((4, 3), torch.inf), False), (torch.ones(4, 3), True)):
        replica.backward(replica.model(inputs).mean())
        replica.update(lambda optimizer: optimizer.step())
        equal = [torch.equal(now, then) for now, then in zip(replica.weights(), before, strict=True)]
        assert equal == [not moves, not moves]
    assert apex.calls.count(("skipped",)) == 1


def test_two_ranks_learn_what_ddp_learns_and_evaluate_with_rank_0s_batch_norm(data: Path, tmp_path: Path):
    """apex's DistributedDataParallel leaves batch norm's statistics to each rank."""
    apex = small_trial("apex", optimizer={**SGD, "momentum": 0.9}, options={"fused_sgd": True})
    ddp = small_trial("ddp", optimizer={**SGD, "momentum": 0.9})
    found = measured(apex, data, tmp_path / "a", inject="apex_on_cpu,batch_norm_model,keep_weights", **standins())
    expected = measured(ddp, data, tmp_path / "b", inject="batch_norm_model,keep_weights")
    for mine, theirs in zip(found.found("weights")[0], expected.found("weights")[0], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    evaluated = found.found("evaluated")
    assert evaluated[0] == evaluated[1]
