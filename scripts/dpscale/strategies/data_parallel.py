"""nn.DataParallel: one process scatters the batch over the devices and gathers outputs and gradients on the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpscale.strategies.base import Strategy

if TYPE_CHECKING:
    from torch import nn

    from dpscale.trial import Trial
    from dpscale.world import World


def _needs(trial: Trial) -> str | None:
    if trial.device != "cuda":
        return "needs CUDA devices: nn.DataParallel on a CPU trains on one device, so its times would be another row's"
    return None  # too few devices is every strategy's need: see train.unmet_need


def _prepare(model: nn.Module, options: Any, world: World) -> nn.Module:
    from torch import nn

    return nn.DataParallel(model, device_ids=list(range(world.devices_per_node)))


ROW = Strategy(
    summary="nn.DataParallel: one process, the batch scattered over the devices of one node",
    single_process=True,
    min_devices=2,
    needs=_needs,
    prepare=_prepare,
)
