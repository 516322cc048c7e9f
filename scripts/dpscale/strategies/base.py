"""What a strategy is: functions with do-nothing defaults and facts. None of it sees a clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpscale.typed import Strict

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dpscale.trial import Trial
    from dpscale.world import World


class NoOptions(Strict):
    """A row without options: every extra key of its variants is refused."""


def nothing_needed(trial: Trial) -> str | None:
    return None


def as_it_is(model: nn.Module, options: Any, world: World) -> nn.Module:
    return model


def torch_optimizer(
    parameters: Iterable[nn.Parameter], *, name: str, lr: float, momentum: float | None, weight_decay: float
) -> torch.optim.Optimizer:
    from torch import optim

    factory = {"adadelta": optim.Adadelta, "adam": optim.Adam, "adamw": optim.AdamW, "sgd": optim.SGD}[name]
    extra = {} if momentum is None else {"momentum": momentum}
    return factory(parameters, lr=lr, weight_decay=weight_decay, **extra)


def plain_backward(loss: torch.Tensor, model: nn.Module, world: World) -> None:
    loss.backward()


def step_and_clear(optimizer: torch.optim.Optimizer) -> None:
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module inside torch's wrappers, which all call it `module`."""
    from torch import nn

    inner = getattr(model, "module", None)
    return inner if isinstance(inner, nn.Module) else model


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One row of STRATEGIES: what differs between strategies, and nothing else.

    Functions that need torch import it inside, because Snakemake reads the table where torch may be missing.
    """

    summary: str  # one line for README, plan and report
    options: type[Strict] = NoOptions  # typed options of the row
    single_process: bool = False  # one process drives all devices; world_size is 1 whatever N
    min_devices: int = 1  # N below or above which the row means nothing
    max_devices: int | None = None
    launchers: tuple[str, ...] | None = None  # None = every launcher
    exchanges_gradients: bool = True  # False: ranks end with weights of their own, so the gate and accuracy don't apply
    weights_rtol: float = 0.0  # how far ranks' weights may differ at the end, relative to the largest weight

    needs: Callable[[Trial], str | None] = nothing_needed  # probed where the trial runs; the reason it can't, or None
    prepare: Callable[[nn.Module, Any, World], nn.Module] = as_it_is  # before the optimiser is made
    make_optimizer: Callable[..., torch.optim.Optimizer] = torch_optimizer
    backward: Callable[[torch.Tensor, nn.Module, World], None] = plain_backward  # ends with gradients exchanged
    update: Callable[[torch.optim.Optimizer], None] = step_and_clear
    finish: Callable[[nn.Module, World], None] = lambda model, world: None  # after timing, before the gate
    plain_model: Callable[[nn.Module], nn.Module] = unwrap  # for evaluation and the gate: no collective in its forward
