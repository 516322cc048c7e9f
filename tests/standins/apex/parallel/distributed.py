import torch
import torch.distributed as dist
from torch import nn

from apex import calls


class DistributedDataParallel(nn.Module):
    """Rank 0's weights for all, and gradients averaged in backward. Buffers are each rank's own, as in apex."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        calls.append(("DistributedDataParallel",))
        if not dist.is_initialized():
            return
        for weight in module.parameters():
            dist.broadcast(weight.detach(), src=0)
            weight.register_post_accumulate_grad_hook(self._average)

    def _average(self, weight: torch.Tensor) -> None:
        dist.all_reduce(weight.grad)
        weight.grad /= dist.get_world_size()

    def forward(self, *inputs):
        return self.module(*inputs)
