"""DistributedDataParallel: one process per device, gradients all-reduced in buckets while backward still runs."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from dpscale.strategies.base import Accumulation, Asked, Replica, Strategy
from dpscale.strategies.observed import Observer, Switch, switched
from dpscale.typed import Count, Number

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from dpscale.strategies.observed import Hook


class DDPOptions(Accumulation):
    """Of torch.nn.parallel.DistributedDataParallel; null leaves torch's own default."""

    bucket_cap_MiB: Number | None = Field(None, gt=0, description="size of a gradient bucket")
    gradient_as_bucket_view: bool = Field(False, description="gradients live in the buckets: one copy less")
    static_graph: bool = Field(False, description="the graph is the same in every step")
    find_unused_parameters: bool = Field(False, description="search the graph for parameters without a gradient")


class Options(DDPOptions):
    """Of the row `ddp`: DDP's own, and how its buckets are compressed."""

    comm_hook: Literal["none", "fp16", "bf16", "powersgd"] = Field(
        "none", description="compression of the exchanged gradients: half precision, or PowerSGD's low rank"
    )
    powersgd_rank: Count = Field(1, description="rank of PowerSGD's approximation; more is closer and slower")
    powersgd_start_step: int = Field(
        2, ge=2, description="steps that PowerSGD exchanges in full first; below 2 its error feedback has no start"
    )


class DDPReplica(Replica):
    """DDP around the model. `options` are DDPOptions at least."""

    sync_buffers = True  # before each forward, rank 0's
    model: DistributedDataParallel
    _held: AbstractContextManager[None] | None = None
    _synchronised_once = False

    def wrap(self, model: nn.Module) -> nn.Module:
        return self._distributed(model, self.hook())

    def hook(self) -> Hook | None:
        """(its state, DDP's communication hook): another way to exchange buckets than DDP's own."""
        return None

    def observe(self, observer: Observer) -> Switch:
        """Wrap the model anew, with the same exchange under observation. All ranks call it together."""
        plain = self.plain_model
        switch = Switch(observer, self.hook())
        del self.model
        gc.collect()  # a wrapper and its hooks hold each other
        self.model = self._distributed(plain, (switch, switched))
        self._synchronised_once = False
        switch.attach(self.model)
        return switch

    def _distributed(self, model: nn.Module, hook: Hook | None) -> DistributedDataParallel:
        from torch.nn.parallel import DistributedDataParallel

        cuda = self.world.device.type == "cuda"
        wrapped = DistributedDataParallel(
            model,
            device_ids=[self.world.device] if cuda else None,  # on a CPU it must be None
            bucket_cap_mb=self.options.bucket_cap_MiB,  # torch's "mb" counts 1024 x 1024 bytes
            gradient_as_bucket_view=self.options.gradient_as_bucket_view,
            static_graph=self.options.static_graph,
            find_unused_parameters=self.options.find_unused_parameters,
            forward_sync_buffers=self.sync_buffers,
        )
        if hook is not None:
            wrapped.register_comm_hook(*hook)
        return wrapped

    def begin(self, last: bool) -> None:
        # no_sync must hold over forward and backward. With static_graph the first iteration ever must synchronise:
        # what it averages early, the last exchange averages again, to the same mean.
        if not last and (self._synchronised_once or not self.options.static_graph):
            self._held = self.model.no_sync()
            self._held.__enter__()
        self._synchronised_once = True

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()
        if self._held is not None:
            self._held.__exit__(None, None, None)
            self._held = None


class HookedReplica(DDPReplica):
    """DDP with the compression that `comm_hook` names."""

    @property
    def cannot_resume(self) -> str | None:
        if self.options.comm_hook != "powersgd":
            return None
        return "PowerSGD keeps errors of buckets, which DDP lays out anew after the first step"

    def hook(self) -> Hook | None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        match self.options.comm_hook:
            case "fp16":
                return None, default_hooks.fp16_compress_hook
            case "bf16":
                return None, default_hooks.bf16_compress_hook
            case "powersgd":
                state = powerSGD_hook.PowerSGDState(
                    process_group=None,
                    matrix_approximation_rank=self.options.powersgd_rank,
                    start_powerSGD_iter=self.options.powersgd_start_step,
                )
                # not its batched form, which fails in torch 2.14
                in_turn = self.world.device.type == "cpu"
                return state, _powersgd_in_turn if in_turn else powerSGD_hook.powerSGD_hook
        return None


def _powersgd_in_turn(state, bucket):  # type: ignore[no-untyped-def]  # DDP checks annotations as objects, not as text
    """PowerSGD's hook, one bucket after the other.

    It exchanges each bucket several times, from callbacks. gloo runs these on threads of its own, so that ranks would
    meet in different orders as soon as there are two buckets; NCCL keeps them in the order of its stream.
    """
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import powerSGD_hook

    exchanged = powerSGD_hook(state, bucket)
    exchanged.wait()
    return exchanged


def cannot_explain(options: DDPOptions, asked: Asked) -> str | None:
    """Why a training with these options can't be explained, where that is asked for; or None."""
    if options.find_unused_parameters and asked.explain:
        return (
            "find_unused_parameters = True: DDP then exchanges which were used, in a control that must exchange nothing "
            "too; set explain: false in this variant"
        )
    return None


def _refuses(options: Options, asked: Asked) -> str | None:
    tuned = {"powersgd_rank", "powersgd_start_step"} & options.model_fields_set
    if tuned and options.comm_hook != "powersgd":
        return f"{', '.join(sorted(tuned))}: only comm_hook: powersgd has it; set that or remove it"
    if options.comm_hook == "powersgd" and asked.compile:
        return "comm_hook = 'powersgd': compiling takes a step that it would count; set compile: false in this variant"
    return cannot_explain(options, asked)


ROW = Strategy(
    summary="DistributedDataParallel: bucketed all-reduce overlapped with backward",
    options=Options,
    refuses=_refuses,
    replica=HookedReplica,
    explains=True,
)
