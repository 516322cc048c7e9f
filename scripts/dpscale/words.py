"""Lists and counts in words, as advice and methods write them."""

from __future__ import annotations

from collections.abc import Iterable


def listed(values: Iterable[object], last: str = "and") -> str:
    """`a, b and c`."""
    texts = [str(value) for value in values]
    return f" {last} ".join(filter(None, [", ".join(texts[:-1]), texts[-1]])) if texts else ""


def counted(count: int, what: str, several: str | None = None) -> str:
    """`1 launch`, `1,797 launches`."""
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"
