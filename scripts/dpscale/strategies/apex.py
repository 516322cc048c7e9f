"""NVIDIA apex: its DistributedDataParallel and its mixed precision `amp`, which torch's own have taken the place of.

NVIDIA removed both after tag 25.05; they are measured here against their successors, where an old apex is still installed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from dpscale.strategies.base import Asked, Replica, Setup, Strategy
from dpscale.typed import Strict

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dpscale.trial import Trial

HALF_LEVELS = ("O1", "O2", "O3")
SOURCE = "use NVIDIA's image nvcr.io/nvidia/pytorch:25.04-py3, or conda-forge's nvidia-apex 25.04"


class Options(Strict):
    """Of apex."""

    opt_level: Literal["O0", "O1", "O2", "O3"] | None = Field(
        None,
        description="of amp: O0 is fp32; O1 casts operations, O2 weights beside fp32 masters, O3 all to fp16; "
        "null is O0 or O1, as precision says",
    )
    fused_sgd: bool = Field(False, description="apex.optimizers.FusedSGD in the place of torch's SGD")
    sync_bn: bool = Field(False, description="batch norm over the global batch, by apex.parallel.SyncBatchNorm")

    def level(self, precision: str) -> str:
        return self.opt_level or ("O1" if precision == "fp16" else "O0")


class ApexReplica(Replica):
    def __init__(self, setup: Setup) -> None:
        from apex import amp, parallel

        super().__init__(setup)
        # both at once, as amp casts the weights that the optimiser holds, and before DDP, which hooks into the cast ones
        model, self.optimizer = amp.initialize(
            self.model, self.optimizer, opt_level=self.options.level(self.precision), verbosity=0
        )
        self.model = parallel.DistributedDataParallel(model)

    def wrap(self, model: nn.Module) -> nn.Module:
        from apex import parallel

        return parallel.convert_syncbn_model(model) if self.options.sync_bn else model

    def make_optimizer(
        self, factory: Callable[..., torch.optim.Optimizer], arguments: dict[str, Any]
    ) -> torch.optim.Optimizer:
        if self.options.fused_sgd:
            from apex import optimizers

            factory = optimizers.FusedSGD
        return super().make_optimizer(factory, arguments)

    def state(self) -> dict[str, Any]:
        from apex import amp

        return {**super().state(), "amp": amp.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        from apex import amp

        super().load_state(state)
        amp.load_state_dict(state["amp"])

    def backward(self, loss: torch.Tensor) -> None:
        from apex import amp

        # its end takes the scale out again, and makes the coming step a skipped one where a gradient is not finite
        with amp.scale_loss(loss, self.optimizer) as scaled:
            scaled.backward()


def _needs(trial: Trial) -> str | None:
    if trial.device != "cuda":
        return "needs a CUDA device: NVIDIA apex has no CPU form"
    return installed(fused_sgd=bool(trial.options.get("fused_sgd")))


def installed(fused_sgd: bool) -> str | None:
    """What is wrong with the `apex` of this Python, or None. Its files are looked at and nothing is imported: the package
    of that name on PyPI runs code of its own, and NVIDIA's takes seconds."""
    found = find_spec("apex")
    if found is None:
        return f"needs NVIDIA apex <= 25.05: not installed; {SOURCE}"
    folders = [Path(folder) for folder in found.submodule_search_locations or ()]

    def has(*parts: str) -> bool:
        return any((folder / part).exists() for folder in folders for part in parts)

    if not has("multi_tensor_apply", "amp"):
        where = found.origin or ", ".join(map(str, folders))
        return f"needs NVIDIA apex <= 25.05: {where} is another package of that name; pip uninstall apex, then {SOURCE}"
    if not (has("amp") and has("parallel/distributed.py")):
        return f"needs NVIDIA apex <= 25.05: this one is newer and has no amp and no DistributedDataParallel; {SOURCE}"
    if fused_sgd and find_spec("amp_C") is None:
        return (
            "fused_sgd needs apex with its CUDA extensions: this one was built without; "
            f"build it with --cpp_ext --cuda_ext, or {SOURCE}"
        )
    return None


def _refuses(options: Options, asked: Asked) -> str | None:
    precision, level = asked.precision, options.level(asked.precision)
    if (level in HALF_LEVELS) != (precision == "fp16"):
        fitting = "O0" if precision == "fp32" else ", ".join(HALF_LEVELS)
        return f"opt_level = {level!r} contradicts precision {precision}, which is {fitting}; change one of the two"
    if options.fused_sgd and asked.optimizer != "sgd":
        return f"fused_sgd = True: the optimizer is {asked.optimizer}; use optimizer.name: sgd, or remove it"
    if options.sync_bn and asked.device == "cpu":
        return "sync_bn = True: batch norm over ranks works on GPUs only; remove it, or use device: cuda"
    return None


ROW = Strategy(
    summary="NVIDIA apex: its DistributedDataParallel, and amp's levels O0 to O3",
    requires="CUDA, NVIDIA apex up to 25.05",
    options=Options,
    precisions=("fp32", "fp16"),
    casts_itself=True,
    compiles=False,
    rehearses=False,  # amp.initialize wants to be called once
    refuses=_refuses,
    needs=_needs,
    replica=ApexReplica,
)
