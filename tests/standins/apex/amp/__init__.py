"""amp: fp32 underneath, but a loss is scaled and gradients are unscaled; a step whose gradients overflow is skipped."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from apex import calls

SCALE = 1024.0


def initialize(
    models: nn.Module, optimizers: torch.optim.Optimizer, opt_level: str = "O1", verbosity: int = 1
) -> tuple[nn.Module, torch.optim.Optimizer]:
    held = {id(weight) for group in optimizers.param_groups for weight in group["params"]}
    assert held == {id(weight) for weight in models.parameters()}, "the optimizer holds other weights than the model"
    assert not hasattr(models, "module"), "amp.initialize should be called before wrapping the model in DDP"
    calls.append(("initialize", opt_level, type(optimizers).__name__))
    return models, optimizers


@contextmanager
def scale_loss(loss: torch.Tensor, optimizers: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    yield loss.float() * SCALE
    calls.append(("scale_loss",))
    weights = [weight for group in optimizers.param_groups for weight in group["params"]]
    for weight in weights:
        weight.grad /= SCALE
    if not all(torch.isfinite(weight.grad).all() for weight in weights):
        step = optimizers.step

        def skip(closure=None) -> None:
            calls.append(("skipped",))
            optimizers.step = step

        optimizers.step = skip
