"""Parts of a step and how they look: the same wherever a step is taken apart, be it measured or predicted."""

from __future__ import annotations

from typing import Any

from dpscale.config import FigureConfig
from dpscale.figures.drawing import colours

HATCHES = {  # column -> hatch, which survives a grey print; the order decides the colours
    "compute_s": "",
    "data_wait_s": "xx",
    "wrapper_s": "..",
    "contention_s": "//",
    "buffers_s": "oo",
    "stretch_s": "\\\\",
    "transfer_s": "",
    "waiting_s": "--",
    "unexplained_s": "",
    "compression_s": "++",
}
PREDICTED_AS = {"exposed_communication_s": "transfer_s", "straggler_s": "waiting_s"}  # what the model has for a cause


def part_colours(settings: FigureConfig) -> dict[str, tuple]:
    """Column of a part, measured or predicted -> its colour."""
    colour_of = colours(list(HATCHES), settings)
    return colour_of | {predicted: colour_of[cause] for predicted, cause in PREDICTED_AS.items()}


def part_looks(settings: FigureConfig) -> dict[str, dict[str, Any]]:
    """Column of a part, measured or predicted -> how its bars look."""
    return {
        part: {"color": colour, "hatch": hatch_of(part), "edgecolor": "white", "linewidth": 0.5}
        for part, colour in part_colours(settings).items()
    }


def hatch_of(part: str) -> str:
    return HATCHES[PREDICTED_AS.get(part, part)]
