"""Local SGD: ranks train on their own and average their weights every so many steps.

Torch's post-local SGD (Lin et al., "Don't use large mini-batches, use local SGD", 2018): a number of synchronous steps
first, then local ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dpscale.strategies.base import Asked, Strategy
from dpscale.strategies.ddp import DDPOptions, DDPReplica
from dpscale.typed import Count

if TYPE_CHECKING:
    import torch

    from dpscale.strategies.observed import Hook


class Options(DDPOptions):
    """Of local SGD."""

    period: Count = Field(4, description="local steps between two averages of the weights")
    synchronous_steps: int = Field(0, ge=0, description="steps with exchanged gradients before the first local one")


class LocalSGDReplica(DDPReplica):
    ranks_differ = True

    def hook(self) -> Hook | None:
        import torch.distributed as dist
        from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
            PostLocalSGDState,
            post_localSGD_hook,
        )

        # an explicit subgroup: without one torch would average the gradients of each machine's ranks
        alone = [dist.new_group([rank]) for rank in range(self.world.size)][self.world.rank]
        state = PostLocalSGDState(
            process_group=None,
            subgroup=alone,
            start_localSGD_iter=self.options.synchronous_steps,
            post_local_gradient_allreduce=False,
        )
        self._hook_state = state
        return state, post_localSGD_hook

    def make_optimizer(
        self, factory: Callable[..., torch.optim.Optimizer], arguments: dict[str, Any]
    ) -> torch.optim.Optimizer:
        from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        from torch.distributed.optim import PostLocalSGDOptimizer

        averager = PeriodicModelAverager(period=self.options.period, warmup_steps=self.options.synchronous_steps)
        return PostLocalSGDOptimizer(super().make_optimizer(factory, arguments), averager)

    @property
    def steps_apart(self) -> int:
        period: int = self.options.period
        return period

    def state(self) -> dict[str, Any]:
        return {**super().state(), "hook_steps": self._hook_state.iter}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self._hook_state.iter = state["hook_steps"]

    def agree(self) -> None:
        import torch
        import torch.distributed as dist

        with torch.no_grad():
            for parameter in self.model.parameters():
                dist.all_reduce(parameter, op=dist.ReduceOp.AVG)


def _refuses(options: Options, asked: Asked) -> str | None:
    if options.synchronous_steps and asked.compile:
        return (
            f"synchronous_steps = {options.synchronous_steps}: compiling takes a step that it would count; set compile: false "
            "in this variant"
        )
    return None


ROW = Strategy(
    summary="local SGD: ranks train alone and average their weights every `period` steps, and before evaluating",
    options=Options,
    min_devices=2,
    imported_first=("torch.distributed.optim",),
    precisions=("fp32", "tf32", "bf16"),  # a rank that skips an fp16 step would miss an average
    refuses=_refuses,
    replica=LocalSGDReplica,
)
