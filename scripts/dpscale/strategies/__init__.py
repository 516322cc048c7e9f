"""STRATEGIES: the one table. To add a strategy, write a module with a ROW beside this file and name it here.

A trial's code digest holds its own row's module and none of the others, so that adding a row re-runs nothing.
"""

from dpscale.strategies import data_parallel, ddp, independent, single
from dpscale.strategies.base import Strategy

STRATEGIES: dict[str, Strategy] = {
    "single": single.ROW,
    "data_parallel": data_parallel.ROW,
    "ddp": ddp.ROW,
    "independent": independent.ROW,
}
