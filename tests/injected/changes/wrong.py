"""Trainings that go wrong without a word: the gate and the checks are there to find them."""

from collections.abc import Callable
from dataclasses import replace

from changes.registering import after, is_chosen_rank


@after("dpscale.training")
def forgets_to_synchronise() -> None:
    """A row that claims to exchange gradients, and does not."""
    from dpscale.strategies import STRATEGIES, independent

    STRATEGIES["ddp"] = replace(independent.ROW, exchanges_gradients=True)


@after("dpscale.training")
def forgets_to_synchronise_later() -> None:
    """A row that exchanges gradients in the gate's step and in the first of the training, and no more."""
    from dpscale.strategies import STRATEGIES, allreduce

    class Forgetful(allreduce.AllreduceReplica):
        exchanges = 0

        def exchange(self) -> None:
            if self.exchanges == 0:
                super().exchange()
            self.exchanges += 1

    STRATEGIES["allreduce"] = replace(allreduce.ROW, replica=Forgetful)


def scales_gradients_by(factor: Callable[[int], float]) -> None:
    """A row whose ranks agree, on a step of another length: `factor` of the number of ranks times the right one."""
    from dpscale.strategies import STRATEGIES, allreduce

    class Scaling(allreduce.AllreduceReplica):
        def exchange(self) -> None:
            super().exchange()
            for parameter in self.model.parameters():
                parameter.grad.mul_(factor(self.world.size))

    STRATEGIES["allreduce"] = replace(allreduce.ROW, replica=Scaling)


@after("dpscale.training")
def adds_instead_of_averaging() -> None:
    scales_gradients_by(lambda ranks: ranks)


@after("dpscale.training")
def averages_twice() -> None:
    scales_gradients_by(lambda ranks: 1 / ranks)


@after("dpscale.training")
def lets_buffers_drift() -> None:
    """Nobody gives the ranks the same running statistics in the end."""
    from dpscale.training import Training

    Training.become_one = lambda self: self.replica.agree()


@after("dpscale.training")
def nan_weights() -> None:
    """The last update of the chosen rank left NaN, which no loss shows."""
    import torch

    from dpscale.training import Training

    finish = Training.finish

    def spoilt(self):
        finish(self)
        if is_chosen_rank():
            with torch.no_grad():
                next(self.plain_model.parameters()).view(-1)[0] = float("nan")

    Training.finish = spoilt
