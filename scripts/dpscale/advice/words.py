"""Numbers in words: three digits, units, and what their low and high are."""

from __future__ import annotations

from collections.abc import Sequence

from dpscale.statistics import Estimate
from dpscale.words import listed

AT_MOST = 5  # cells that are named one by one in a sentence
FIRST = 3  # named of more


def decimals(value: float) -> int:
    """So many that three digits are shown."""
    return max(0, 2 - int(f"{value:.2e}".partition("e")[2])) if value else 0


def number(value: float, places: int | None = None) -> str:
    """As many decimals as asked for, by default as make three digits; never an exponent."""
    text = f"{value:,.{decimals(value) if places is None else places}f}"
    return text if text.strip("-0.,") else text.removeprefix("-")


def as_given(value: float) -> str:
    """As it was configured: `756.5`, not the three digits of what was measured."""
    return f"{value:,.10g}"


def amount(found: Estimate, unit: str) -> str:
    """`0.459 s (95 % interval: 0.441 to 0.499)`, all with the decimals of the value, or of how far its ends are apart, if these are
    fewer."""
    apart = decimals(found.high - found.low)
    places = (
        apart
        if found.value == 0 or (found.high > found.low and apart < decimals(found.value))
        else decimals(found.value)
    )
    value = f"{number(found.value, places)} {unit}".rstrip()
    if found.spread == "one value":
        return f"{value} (one launch)"
    return f"{value} ({found.spread}: {number(found.low, places)} to {number(found.high, places)})"


def sentence(text: str) -> str:
    """With a capital letter, unless it begins with a name, which keeps its spelling."""
    return text if "/" in text.split(" ", 1)[0] else text[:1].upper() + text[1:]


def cells_named(names: Sequence[str], last: str = "and") -> str:
    """`a, b and c`; of many `a, b, c and 34 other cells`, all of which are among what the sentence follows from."""
    if len(names) <= AT_MOST:
        return listed(names, last)
    others = f"{len(names) - FIRST} other cells"
    return listed([*names[:FIRST], others if last == "and" else f"one of {others}"], last)
