"""Marks of strategies: as Bokeh draws them and as a legend of text shows them."""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    name: str  # of Bokeh's marker
    sign: str  # that looks like it


MARKS = (
    Mark("circle", "●"),
    Mark("square", "■"),
    Mark("diamond", "◆"),
    Mark("triangle", "▲"),
    Mark("inverted_triangle", "▼"),
    Mark("hex", "⬢"),
    Mark("star", "★"),
    Mark("plus", "✚"),
    Mark("square_pin", "✦"),
)
DASHES = ("solid", "dashed", "dotdash", "dotted")  # of launchers' lines
