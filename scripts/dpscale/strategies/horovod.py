"""Horovod's DistributedOptimizer: gradients are all-reduced by its own background thread while backward still runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from dpscale.errors import UserError
from dpscale.strategies.base import Replica, Strategy
from dpscale.typed import Strict

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dpscale.trial import Trial


class Options(Strict):
    """Of horovod.torch.DistributedOptimizer."""

    compression: Literal["none", "fp16"] = Field("none", description="format in which gradients are exchanged")


class HorovodReplica(Replica):
    def wrap(self, model: nn.Module) -> nn.Module:
        import horovod.torch as hvd

        hvd.init()
        if hvd.size() != self.world.size:  # under anything but its own launcher it is alone, and says nothing
            raise UserError(
                f"Horovod sees {hvd.size()} of {self.world.size} ranks: it was not started by its own launcher; use horovodrun"
            )
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model

    def make_optimizer(
        self, factory: Callable[..., torch.optim.Optimizer], arguments: dict[str, Any]
    ) -> torch.optim.Optimizer:
        import horovod.torch as hvd

        # Its state is not broadcast: a new optimiser has none, on any rank, and Horovod would take a step to make some.
        # Adam would then count from 1, and weight decay would act once more.
        return hvd.DistributedOptimizer(
            super().make_optimizer(factory, arguments),
            named_parameters=self.model.named_parameters(),
            compression=getattr(hvd.Compression, self.options.compression),
        )

    def exchange(self) -> None:
        self.optimizer.synchronize()  # type: ignore[attr-defined]

    def update(self, step: Callable[[torch.optim.Optimizer], object]) -> None:
        with self.optimizer.skip_synchronize():  # type: ignore[attr-defined]
            super().update(step)


def _needs(trial: Trial) -> str | None:
    """Looked for and not imported: that would load torch, and start nothing else."""
    found = find_spec("horovod")
    if found is None:
        return "needs Horovod: not installed (make horovod)"
    if not any(any(Path(folder).glob("torch/mpi_lib_v2*")) for folder in found.submodule_search_locations or ()):
        return "needs Horovod with PyTorch: this one was built without it (make horovod)"
    return None


ROW = Strategy(
    summary="Horovod's DistributedOptimizer: its background thread all-reduces gradients during backward",
    requires="Horovod 0.28: `make horovod` builds it",
    options=Options,
    launchers=("horovodrun",),
    # its optimiser runs torch's hooks twice a step, so that steps which an fp16 scaler skips could not be counted
    precisions=("fp32", "tf32", "bf16"),
    needs=_needs,
    replica=HorovodReplica,
)
