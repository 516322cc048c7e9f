"""nn.DataParallel: one process scatters the batch over the devices and gathers outputs and gradients on the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from dpscale.strategies.base import Asked, Replica, Strategy
from dpscale.typed import Strict

if TYPE_CHECKING:
    from torch import nn

    from dpscale.trial import Trial


class Options(Strict):
    """Of torch.nn.DataParallel."""

    output_device: int = Field(0, ge=0, description="index of the device that gathers outputs and the loss")


class DataParallelReplica(Replica):
    def wrap(self, model: nn.Module) -> nn.Module:
        from torch import nn

        devices = list(range(self.world.devices_per_node))
        return nn.DataParallel(model, device_ids=devices, output_device=self.options.output_device)


def _needs(trial: Trial) -> str | None:
    if trial.device != "cuda":
        return "needs CUDA devices: nn.DataParallel on a CPU trains on one device, so its times would be another row's"
    return None  # too few devices is every strategy's need: see train.unmet_need


def _refuses(options: Options, asked: Asked) -> str | None:
    if options.output_device >= asked.fewest_devices:
        last = asked.fewest_devices - 1
        return (
            f"output_device = {options.output_device}: its smallest topology has devices 0 to {last}; use one of them"
        )
    return None


ROW = Strategy(
    summary="nn.DataParallel: one process, the batch scattered over the devices of one node",
    requires="2 or more CUDA devices on one node",
    options=Options,
    single_process=True,
    min_devices=2,
    compiles=False,  # replicas are made anew in every forward
    refuses=_refuses,
    needs=_needs,
    replica=DataParallelReplica,
)
