"""Lists in words, as advice and methods write them."""

from __future__ import annotations

from collections.abc import Iterable


def listed(values: Iterable[object], last: str = "and") -> str:
    """`a, b and c`."""
    texts = [str(value) for value in values]
    return f" {last} ".join(filter(None, [", ".join(texts[:-1]), texts[-1]])) if texts else ""
