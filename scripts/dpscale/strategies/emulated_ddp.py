"""DDP over a network that is not there: what it would be to train with the same overlap over other links."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from dpscale.strategies.base import Asked, Strategy
from dpscale.strategies.ddp import DDPOptions, DDPReplica, cannot_explain

if TYPE_CHECKING:
    from dpscale.emulation.link import Link
    from dpscale.strategies.observed import Hook


class Options(DDPOptions):
    """Of emulated_ddp."""

    network: str = Field(
        min_length=1,
        description="file of the network's latencies and bandwidths, from the folder that snakemake runs in",
    )


class EmulatedReplica(DDPReplica):
    @cached_property
    def link(self) -> Link:
        """One for all wrappers that this rank's model gets in turn."""
        from dpscale.emulation.link import Link
        from dpscale.emulation.network import Network

        return Link(Network.read(Path(self.options.network)), self.world)

    def hook(self) -> Hook | None:
        return self.link, _average


def _average(state, bucket):  # type: ignore[no-untyped-def]  # DDP checks annotations as objects, not as text
    import torch.distributed as dist

    return state.all_reduce(bucket.buffer().div_(dist.get_world_size()))


def _refuses(options: Options, asked: Asked) -> str | None:
    if asked.device != "cpu":
        return f"device = {asked.device!r}: its links are emulated between processes that exchange on the CPU; use device: cpu"
    return cannot_explain(options, asked)


ROW = Strategy(
    summary="DDP over an emulated network, whose latencies and bandwidths a file gives",
    options=Options,
    refuses=_refuses,
    replica=EmulatedReplica,
    explains=True,
)
