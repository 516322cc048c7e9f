"""What a strategy is: facts, typed options, and a Replica, which is one rank's training under it. None of it sees a clock.

Functions and methods that need torch import it inside, because Snakemake reads the table where torch may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from dpscale.typed import Count, Strict

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dpscale.trial import Trial
    from dpscale.world import World

OURS = {"clip_norm", "lr_reference_batch", "schedule"}  # keys of the config's optimizer; the others are torch's
MODEL = "model.pt"  # in a checkpoint: the whole model, under the names of the user's own module
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


class NoOptions(Strict):
    """A row without options: every extra key of its variants is refused."""


class Accumulation(Strict):
    """Options of a row that can take a batch in parts."""

    accumulation_steps: Count = Field(
        1, description="parts that a device's batch goes through in; gradients are exchanged once, after the last"
    )


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a Replica is made from."""

    model: nn.Module  # the user's own, on its device, with the same weights on every rank
    options: Any  # of the row
    optimizer: Mapping[str, Any]  # the config's, with the learning rate of this trial
    precision: str
    batch_size_per_rank: int
    world: World


class Replica:
    """One rank's model and optimiser. As it stands, that of one device: rows override what differs.

    measure.py calls `forward` and `backward` for each part of a batch, then `exchange` (in the time of backward), then
    `update`. Gradients are those of the mean over the global batch when `update` begins.
    """

    def __init__(self, setup: Setup) -> None:
        self.world, self.options, self.precision = setup.world, setup.options, setup.precision
        self.batch_size_per_rank = setup.batch_size_per_rank
        self.model = self.wrap(setup.model)
        factory, arguments = torch_optimizer(setup.optimizer)
        self.optimizer = self.make_optimizer(factory, arguments)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is called in training."""
        return model

    def make_optimizer(
        self, factory: Callable[..., torch.optim.Optimizer], arguments: dict[str, Any]
    ) -> torch.optim.Optimizer:
        """The optimiser over the wrapped model's parameters."""
        return factory(self.model.parameters(), **arguments)

    @property
    def learning_rate(self) -> float:
        """As the optimiser has it, which all weights share."""
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        """From the next step on. A library's optimiser around torch's reads it where torch's does."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    @property
    def own_optimizer(self) -> torch.optim.Optimizer:
        """The one that holds this rank's state, where a library wraps it."""
        return self.optimizer

    @property
    def optimizer_state(self) -> Mapping[Any, Any]:
        """What the optimiser keeps on this rank: weight -> name -> value."""
        return self.own_optimizer.state

    @property
    def accumulation_steps(self) -> int:
        return getattr(self.options, "accumulation_steps", 1)

    @property
    def waits_in_forward(self) -> bool:
        """Whether a forward pass of `plain_model` needs all ranks, as sharded weights do."""
        return False

    @property
    def skipped_steps(self) -> int | None:
        """Steps that a gradient scaler of the row's own did not take; None without one."""
        return None

    def begin(self, last: bool) -> None:
        """Before the forward pass of a part of the batch."""

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def exchange(self) -> None:
        """After the last part's backward: average the gradients over ranks, where backward itself has not."""

    def update(self, step: Callable[[torch.optim.Optimizer], object]) -> None:
        """One optimiser step; `step` calls the optimiser's, through a gradient scaler where there is one."""
        step(self.optimizer)
        self.optimizer.zero_grad()  # Horovod's and apex's take no arguments

    def agree(self) -> None:
        """Before an evaluation and after the training: give all ranks the same weights, where training does not."""

    @property
    def plain_model(self) -> nn.Module:
        """For evaluation: without wrappers whose forward waits for other ranks, where the row can."""
        return unwrap(self.model)

    def weights(self) -> Iterable[torch.Tensor]:
        """All weights, whole, on every rank, in the order of the user's model. All ranks call it together."""
        return [parameter.detach() for parameter in self.plain_model.parameters()]

    # Checkpoints. Rows override `state` and `load_state`, or, where a library writes its own files, `save` and `load`.

    @property
    def cannot_resume(self) -> str | None:
        """Why a training under it can't go on from a checkpoint as if nothing had happened; None if it can."""
        return None

    @property
    def steps_apart(self) -> int | None:
        """How many steps a rank can be ahead of another, whose gradients it needs; None = any number."""
        return 1

    @property
    def ranks_differ(self) -> bool:
        """Whether each rank has a state of its own to keep; else rank 0 keeps that of all."""
        return False

    @property
    def weights_differ(self) -> bool:
        """Whether each rank has weights of its own to keep; else MODEL has those of all."""
        return self.ranks_differ

    def state(self) -> dict[str, Any]:
        """Optimiser, weights of its own, and whatever else decides the next step: tensors, numbers and texts in lists and
        dicts."""
        state: dict[str, Any] = {"optimizer": self.own_optimizer.state_dict()}
        if self.weights_differ:
            state["weights"] = {name: weight.detach() for name, weight in self.plain_model.named_parameters()}
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """The inverse of `state`, with the weights of MODEL in it where they are not each rank's own."""
        self.plain_model.load_state_dict(state["weights"], strict=False)  # buffers are every rank's own
        self.own_optimizer.load_state_dict(state["optimizer"])

    def save(self, folder: Path) -> None:
        """Write this training's state into a folder that all ranks share. All ranks call it together."""
        import torch

        if self.ranks_differ or self.world.rank == 0:
            torch.save(self.state(), self._file_in(folder))

    def load(self, folder: Path) -> None:
        """The inverse of `save`. All ranks call it together."""
        import torch

        state = torch.load(self._file_in(folder), map_location="cpu", weights_only=True)
        if not self.weights_differ:
            state["weights"] = torch.load(folder / MODEL, map_location="cpu", weights_only=True)
        self.load_state(state)

    def _file_in(self, folder: Path) -> Path:
        return folder / f"replica-{self.world.rank if self.ranks_differ else 0}.pt"


def torch_optimizer(settings: Mapping[str, Any]) -> tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]:
    """(class, its keyword arguments) of the config's optimizer."""
    from torch import optim

    arguments = {name: value for name, value in settings.items() if value is not None and name not in OURS}
    name = arguments.pop("name")
    return {"adadelta": optim.Adadelta, "adam": optim.Adam, "adamw": optim.AdamW, "sgd": optim.SGD}[name], arguments


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module inside torch's wrappers, which all call it `module`."""
    from torch import nn

    inner = getattr(model, "module", None)
    return inner if isinstance(inner, nn.Module) else model


def nothing_needed(trial: Trial) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an experiment asks of a variant beside its options."""

    device: str
    precision: str
    optimizer: str  # its name
    compile: bool
    channels_last: bool
    explain: bool
    fewest_devices: int  # N of the smallest topology that it runs on


def nothing_refused(options: Any, asked: Asked) -> str | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One row of STRATEGIES: what differs between strategies, and nothing else."""

    summary: str  # one line for README, plan and report
    requires: str = ""  # what must be there, for README; "" = torch alone
    options: type[Strict] = NoOptions  # typed options of the row
    single_process: bool = False  # one process drives all devices; world_size is 1 whatever N
    min_devices: int = 1  # N below or above which the row means nothing
    max_devices: int | None = None
    launchers: tuple[str, ...] | None = None  # None = every launcher
    exchanges_gradients: bool = True  # False: ranks end with weights of their own, so the gate and accuracy don't apply
    rehearses: bool = True  # False: a process can hold one model under it, so no step is taken with another beforehand
    weights_rtol: float = 0.0  # how far ranks' weights may differ at the end, relative to the largest weight
    precisions: tuple[str, ...] = PRECISIONS
    casts_itself: bool = False  # precision is the library's doing: no autocast and no gradient scaler of ours
    compiles: bool = True  # torch.compile applies
    imported_first: tuple[str, ...] = ()  # modules that keep a process group for ever if first imported within one
    explains: bool = False  # its replica can `observe` its exchange and switch it off (strategies/ddp.py)

    refuses: Callable[[Any, Asked], str | None] = nothing_refused  # (options, asked) at plan time: why not, or None
    needs: Callable[[Trial], str | None] = nothing_needed  # probed where the trial runs; the reason it can't, or None
    replica: Callable[[Setup], Replica] = Replica
