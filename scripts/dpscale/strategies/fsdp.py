"""FSDP2, torch's `fully_shard`: weights, gradients and optimiser state are split over the ranks (ZeRO stage 3)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from dpscale.strategies.base import Accumulation, Asked, Replica, Strategy

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.fsdp import FSDPModule


SHARDS = "shards"  # folder in a checkpoint, of torch.distributed.checkpoint


class Options(Accumulation):
    """Of torch.distributed.fsdp.fully_shard."""

    reshard_after_forward: bool = Field(
        True, description="free other ranks' weights after forward and gather them again: less memory, more exchange"
    )


class FSDPReplica(Replica):
    model: FSDPModule  # type: ignore[assignment]

    def wrap(self, model: nn.Module) -> nn.Module:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        half = self.precision == "bf16"
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if half else None,
            reduce_dtype=torch.float32 if half else None,
            output_dtype=torch.float32 if half else None,
        )
        mesh = init_device_mesh(self.world.device.type, (self.world.size,))
        for module in [*blocks(model), model]:
            fully_shard(module, mesh=mesh, reshard_after_forward=self.options.reshard_after_forward, mp_policy=policy)
        return model

    @property
    def waits_in_forward(self) -> bool:
        return True

    def begin(self, last: bool) -> None:
        self.model.set_requires_gradient_sync(last)

    @property
    def plain_model(self) -> nn.Module:
        return self.model  # type: ignore[return-value]

    def weights(self) -> Iterable[torch.Tensor]:
        from torch.distributed.tensor import DTensor

        return [
            parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            for parameter in (parameter.detach() for parameter in self.plain_model.parameters())
        ]

    def save(self, folder: Path) -> None:
        from torch.distributed.checkpoint.state_dict import get_state_dict
        from torch.distributed.checkpoint.state_dict_saver import save

        weights, optimizer = get_state_dict(self.model, self.optimizer)  # type: ignore[arg-type]
        save({"weights": weights, "optimizer": optimizer}, checkpoint_id=folder / SHARDS)

    def load(self, folder: Path) -> None:
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
        from torch.distributed.checkpoint.state_dict_loader import load

        weights, optimizer = get_state_dict(self.model, self.optimizer)  # type: ignore[arg-type]
        load({"weights": weights, "optimizer": optimizer}, checkpoint_id=folder / SHARDS)  # in place
        set_state_dict(self.model, self.optimizer, model_state_dict=weights, optim_state_dict=optimizer)  # type: ignore[arg-type]


def blocks(model: nn.Module) -> list[nn.Module]:
    """What is gathered at a time: the model's children that hold weights, each layer of a list by itself."""
    from torch import nn

    found: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):  # they have no forward to gather weights in
            found += blocks(child)
        elif any(True for _ in child.parameters()):
            found.append(child)
    return found


def _refuses(options: Options, asked: Asked) -> str | None:
    if asked.channels_last:
        return "channels_last = True: FSDP shards contiguous weights only; set channels_last: false in this variant"
    return None


ROW = Strategy(
    summary="FSDP2 (fully_shard): weights, gradients and optimiser state split over the ranks",
    options=Options,
    min_devices=2,
    precisions=("fp32", "tf32", "bf16"),
    casts_itself=True,
    refuses=_refuses,
    replica=FSDPReplica,
)
