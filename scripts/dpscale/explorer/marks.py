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
DASHES = ("solid", "10 5", "2 4 10 4", "2 4")  # of launchers' lines: lengths in pixels, as Bokeh and SVG take them
