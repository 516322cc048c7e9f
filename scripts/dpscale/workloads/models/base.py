"""What a model is: what it takes, how to build it, and the loss that its output goes into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpscale.typed import Strict
from dpscale.workloads.samples import Kind, Samples, described

if TYPE_CHECKING:
    import torch
    from torch import nn


def cross_entropy(output: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Logits (..., classes) and labels (...) int64 -> their mean loss, or with reduction="none" that of each label."""
    from torch.nn import functional

    losses = functional.cross_entropy(output.flatten(end_dim=-2), labels.flatten(), reduction=reduction)
    return losses.view_as(labels) if reduction == "none" else losses


def nothing_refused(options: Any, samples: Samples) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Model:
    """One row of MODELS. `loss` takes what the model gives, labels, and reduction="mean" or "none"."""

    summary: str
    takes: Kind
    options: type[Strict]
    sample_shape: tuple[int, ...] | None = None  # the only one that it takes; None = any
    refuses: Callable[[Any, Samples], str | None] = nothing_refused  # (options, samples): what it takes instead
    build: Callable[[Any, Samples], nn.Module]
    computes: bool = True  # False: its time is not that of the arithmetic that it does
    loss: Callable[..., torch.Tensor] = cross_entropy

    def refusal(self, options: Any, samples: Samples) -> str | None:
        """Why it can't be trained on these samples, as the end of a sentence about it; None if it can."""
        if samples.kind != self.takes or self.sample_shape not in (None, samples.shape):
            return f"takes {described(self.takes, self.sample_shape)}"
        return self.refuses(options, samples)
