"""Numbers in words: three digits, units, and what their low and high are."""

from __future__ import annotations

from dpscale.statistics import Estimate


def decimals(value: float) -> int:
    """So many that three digits are shown."""
    return max(0, 2 - int(f"{value:.2e}".partition("e")[2])) if value else 0


def number(value: float, places: int | None = None) -> str:
    """As many decimals as asked for, by default as make three digits; never an exponent."""
    return f"{value:,.{decimals(value) if places is None else places}f}"


def amount(found: Estimate, unit: str) -> str:
    """`0.459 s (95 % interval: 0.441 to 0.499)`, all with the decimals of the value."""
    places = decimals(found.value)
    value = f"{number(found.value, places)} {unit}".rstrip()
    if found.low == found.high:
        return f"{value} (one launch)" if found.spread == "one value" else value
    return f"{value} ({found.spread}: {number(found.low, places)} to {number(found.high, places)})"


def sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name, which keeps its spelling."""
    return text if "/" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]
