"""A model of the user's own: a function (classes, sample_shape, **model_options) -> nn.Module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpscale import own
from dpscale.errors import UserError
from dpscale.workloads.models.base import cross_entropy
from dpscale.workloads.samples import Samples

if TYPE_CHECKING:
    import torch
    from torch import nn

GIVEN = ("classes", "sample_shape")  # by the dataset; the rest are the config's model_options


def build(name: str, options: dict[str, Any], samples: Samples) -> nn.Module:
    """What the factory makes for these samples.

    Raises:
        UserError: there is no such factory, it does not take these arguments, or makes no module.
    """
    from torch import nn

    model = own.call(name, classes=samples.classes, sample_shape=samples.shape, **options)
    if not isinstance(model, nn.Module):
        raise UserError(f"{name}: returned {type(model).__name__}; return a torch.nn.Module")
    return model


def loss_of(model: nn.Module) -> Callable[..., torch.Tensor]:
    """The module's own `loss(output, labels, reduction="mean" or "none")`, or cross-entropy."""
    loss = getattr(model, "loss", None)
    return loss if callable(loss) else cross_entropy
