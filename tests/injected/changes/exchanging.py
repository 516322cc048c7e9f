"""Collectives that are wrong, missing or slow."""

import time

from changes.registering import after, is_chosen_rank


@after("dpscale.collectives.exchanges")
def sums_wrongly() -> None:
    """The chosen rank's all-reduce is off by one in one element, from the second call on."""
    import torch.distributed as dist

    all_reduce, calls = dist.all_reduce, []

    def wrong(tensor, *arguments, **keywords):
        work = all_reduce(tensor, *arguments, **keywords)
        calls.append(tensor.numel())
        if tensor.numel() > 100 and calls.count(tensor.numel()) == 2 and is_chosen_rank():
            tensor[17] += 1
        return work

    dist.all_reduce = wrong


@after("dpscale.collectives.exchanges")
def backend_without_scatter() -> None:
    import torch.distributed as dist

    def refused(*arguments):
        raise RuntimeError("ProcessGroupSmall does not support scatter")

    dist.scatter = refused


@after("dpscale.survey")
def slow_to_exchange() -> None:
    """The chosen rank takes 50 ms longer for each exchange of the survey."""
    from dpscale import survey

    exchange = survey.exchange

    def slow(*arguments):
        if is_chosen_rank():
            time.sleep(0.05)
        exchange(*arguments)

    survey.exchange = slow
