"""Tables of where a step's time goes."""

from collections.abc import Mapping

from dpscale.explaining.causes import CAUSES, EPOCH_COSTS
from dpscale.tables.schema.cells import CELL, IDENTITY, STATUS

ESTIMATED_CAUSES = {
    "step_s": "a whole step of a round's full exchange, as mean over steps and ranks: the sum of the next nine columns, in s",
    **CAUSES,
    "loader_effect_s": "how much shorter the whole step is on a batch that stays on the device",
    "training_step_s": "a step of the timed epochs, for comparison: median over steps of the mean over ranks",
    **EPOCH_COSTS,
}


def _estimated(columns: Mapping[str, str]) -> dict[str, str]:
    """Each with its low and high beside it."""
    ends = {"": "", "_low": "lower end of ", "_high": "upper end of "}
    return {
        f"{name}{end}": f"{text}{name}" if text else meaning
        for name, meaning in columns.items()
        for end, text in ends.items()
    }


CAUSES_OF_CELLS = {
    **{name: IDENTITY[name] for name in CELL},
    **STATUS,
    "unexplained_because": "why a measured cell has no causes; its costs per epoch it has all the same",
    "repeats": "launches that were measured",
    "rounds": "rounds of blocks in all of them: what medians and intervals are over",
    **_estimated(ESTIMATED_CAUSES),
    "unexplained_percent": "size of unexplained_s, as a share of step_s in %",
    "beside_training_percent": "how much longer step_s is than training_step_s, in %: far from 0, other than the training is explained",
    "others_cpu_percent": "what other processes used of the usable CPUs while causes were measured, in the launch where it was most",
    "spread": "what low and high of a step's columns are: a 95 % interval from 6 rounds on, else the range",
    "epoch_spread": "the same of the costs per epoch, over timed epochs of all launches",
}
STRAGGLERS = {
    **{name: IDENTITY[name] for name in CELL},
    "rank": "0-based",
    "node_name": "SLURM's name of it, else the host's; a rank that was on another node in another launch has a row for each",
    "local_rank": "its number on that node",
    "rounds": "rounds of blocks on that node: what medians and intervals are over",
    "rounds_last": "in how many of them it was, by its local delay, the last of all ranks",
    **_estimated(
        {
            "local_delay_s": "how much later than the other ranks it had its first bucket ready, before it waits for anyone, in s",
            "step_cost_s": "how long the others waited per step, on average, as it came last: below its delay where they use the time",
            "step_s": "a whole step of this rank",
            **CAUSES,
        }
    ),
    "spread": CAUSES_OF_CELLS["spread"],
}
TEXTS = {"unexplained_because", "epoch_spread", "node_name"}
