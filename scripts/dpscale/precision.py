"""Number formats: what torch computes in, and the gradient scaler that fp16 needs. fp32 is IEEE's, unless tf32 is asked for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """One rank's autocast and gradient scaling; both do nothing for a strategy that casts itself, and in fp32."""

    def __init__(self, name: str, device: torch.device, casts_itself: bool = False) -> None:
        self.half = None if casts_itself else HALF.get(name)
        self.device = device
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.half == torch.float16)
        self.updates = self.steps = 0
        if device.type == "cuda":  # cuDNN's own default is tf32
            allowed = name == "tf32"
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.half is None else torch.autocast(self.device.type, dtype=self.half)

    def step(self, optimizer: torch.optim.Optimizer, clip_norm: float | None) -> None:
        """One optimiser step in the order that a scaler asks for: unscale, clip, step, update.

        With a scaler, a step whose gradients are not finite is skipped, and the scale is lowered.
        """
        if clip_norm is not None:
            self.scaler.unscale_(optimizer)
            weights = [weight for group in optimizer.param_groups for weight in group["params"]]
            torch.nn.utils.clip_grad_norm_(weights, clip_norm)
        self.scaler.step(optimizer)
        self.scaler.update()

    def count_steps_of(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the steps that are really taken, where a scaler may skip some."""
        if not self.scaler.is_enabled():
            return
        optimizer.register_step_pre_hook(lambda *_: self._took_step())

    def _took_step(self) -> None:
        self.steps += 1

    def state(self) -> dict[str, Any]:
        """What decides the next steps."""
        return {"scaler": self.scaler.state_dict(), "updates": self.updates, "steps": self.steps}

    def load_state(self, state: dict[str, Any]) -> None:
        """The inverse of `state`."""
        self.scaler.load_state_dict(state["scaler"])
        self.updates, self.steps = state["updates"], state["steps"]

    @property
    def skipped_steps(self) -> int | None:
        """None without a scaler."""
        return self.updates - self.steps if self.scaler.is_enabled() else None
