"""DeepSpeed: its engine around the model and torch's optimiser, at ZeRO stage 0 to 3. An optional dependency."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from dpscale.strategies.base import Accumulation, Asked, Replica, Setup, Strategy
from dpscale.typed import Count, Flag

if TYPE_CHECKING:
    import torch
    from deepspeed import DeepSpeedEngine
    from torch import nn

    from dpscale.trial import Trial

INSTALL = "make deepspeed"
ENGINE = "engine"  # folder in a checkpoint, of DeepSpeed's own files


class Options(Accumulation):
    """Of DeepSpeed's `zero_optimization`; null leaves DeepSpeed's own default."""

    accumulation_steps: Count = Field(
        1, description="parts that a device's batch goes through in; from stage 2 on gradients are exchanged after each"
    )
    stage: Literal[0, 1, 2, 3] = Field(
        2, description="split over the ranks: 0 nothing, 1 optimiser state, 2 gradients too, 3 weights too"
    )
    overlap_comm: Flag | None = Field(None, description="exchange gradients while backward still runs")
    reduce_bucket_size: Count | None = Field(None, description="gradients exchanged at a time, in elements")


class DeepSpeedReplica(Replica):
    model: DeepSpeedEngine

    def __init__(self, setup: Setup) -> None:
        self.clip_norm = setup.optimizer.get("clip_norm")
        super().__init__(setup)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The engine wants the optimiser, too: see make_optimizer. Here, only what lets it compute in half precision."""
        import torch

        from dpscale.precision import HALF

        half = HALF.get(self.precision)
        if half is not None:
            model.register_forward_pre_hook(lambda _, inputs: tuple(_cast(value, half) for value in inputs))
            model.register_forward_hook(lambda _, inputs, output: _cast(output, torch.float32))  # for the loss
        return model

    def make_optimizer(
        self, factory: Callable[..., torch.optim.Optimizer], arguments: dict[str, Any]
    ) -> torch.optim.Optimizer:
        deepspeed = _imported(self.world.device.type)
        optimizer = super().make_optimizer(factory, arguments)
        self.model, *_ = deepspeed.initialize(
            model=self.model, optimizer=optimizer, config=self.configuration(), dist_init_required=False
        )
        return optimizer  # the engine steps it

    def configuration(self) -> dict[str, Any]:
        """DeepSpeed's own, as its documentation calls `ds_config`."""
        zero = self.options.model_dump(exclude={"accumulation_steps"}, exclude_none=True)
        parts = self.options.accumulation_steps
        return {
            "train_micro_batch_size_per_gpu": self.batch_size_per_rank // parts,
            "gradient_accumulation_steps": parts,
            "gradient_clipping": self.clip_norm or 0.0,  # its own default is 1.0
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,  # all of torch's work on the flat parts that ZeRO gives them
            "bf16": {"enabled": self.precision == "bf16"},
            "fp16": {"enabled": self.precision == "fp16"},
            "timers": {"throughput": {"enabled": False}},  # it would drain the device at every step
        }

    def begin(self, last: bool) -> None:
        self.model.set_gradient_accumulation_boundary(last)

    def backward(self, loss: torch.Tensor) -> None:
        self.model.backward(loss, scale_wrt_gas=False)  # the loss is its part of the batch's already

    def update(self, step: Callable[[torch.optim.Optimizer], object]) -> None:
        self.model.step()  # clips, steps and clears the gradients; in fp16 its own scaler may skip the step

    @property
    def skipped_steps(self) -> int | None:
        return self.model.skipped_steps if self.precision == "fp16" else None

    @property
    def waits_in_forward(self) -> bool:
        return self.options.stage == 3

    def save(self, folder: Path) -> None:
        self.model.save_checkpoint(str(folder), tag=ENGINE)

    def load(self, folder: Path) -> None:
        self.model.load_checkpoint(str(folder), tag=ENGINE)

    def weights(self) -> Iterable[torch.Tensor]:
        import deepspeed

        parameters = list(self.plain_model.parameters())
        with deepspeed.zero.GatheredParameters(parameters, enabled=self.options.stage == 3):
            return [parameter.detach().clone() for parameter in parameters]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    import torch

    return value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value


def _imported(device: str) -> Any:
    """The library, for this kind of device: it would guess, and once guessed it stays."""
    os.environ["DS_ACCELERATOR"] = device
    import warnings

    import deepspeed

    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")  # names that it calls

    # All-reduce over shared memory, which inference alone uses: building it at the first start needs a C++ compiler,
    # ranks that are killed meanwhile leave a lock that stops all later ones, and its memory outlives killed ranks.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _refuses(options: Options, asked: Asked) -> str | None:
    if options.stage == 3 and asked.channels_last:
        return "channels_last = True: stage 3 splits contiguous weights only; set channels_last: false in this variant"
    return None


def _needs(trial: Trial) -> str | None:
    return None if find_spec("deepspeed") else f"needs DeepSpeed: not installed ({INSTALL})"


ROW = Strategy(
    summary="DeepSpeed's engine: ZeRO stages 0 to 3, what is split over the ranks grows with the stage",
    requires="DeepSpeed: `make deepspeed`",
    options=Options,
    casts_itself=True,
    compiles=False,  # the engine compiles by a call of its own
    refuses=_refuses,
    needs=_needs,
    replica=DeepSpeedReplica,
)
