"""STRATEGIES: the one table. To add a strategy, write a module with a ROW beside this file and name it here.

A trial's code digest holds its own row's module and none of the others, so that adding a row re-runs nothing.
"""

from dpscale.strategies import (
    allreduce,
    apex,
    by_hand,
    data_parallel,
    ddp,
    deepspeed,
    emulated_ddp,
    fsdp,
    horovod,
    independent,
    local_sgd,
    single,
    zero,
)
from dpscale.strategies.base import Strategy

STRATEGIES: dict[str, Strategy] = {
    "single": single.ROW,
    "data_parallel": data_parallel.ROW,
    "ddp": ddp.ROW,
    "allreduce": allreduce.ROW,
    "ring": by_hand.RING,
    "parameter_server": by_hand.PARAMETER_SERVER,
    "local_sgd": local_sgd.ROW,
    "zero": zero.ROW,
    "fsdp": fsdp.ROW,
    "deepspeed": deepspeed.ROW,
    "horovod": horovod.ROW,
    "apex": apex.ROW,
    "independent": independent.ROW,
    "emulated_ddp": emulated_ddp.ROW,
}
