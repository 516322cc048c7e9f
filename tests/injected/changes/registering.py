"""How a change is registered, and which rank it concerns."""

import json
import os
from collections.abc import Callable
from pathlib import Path

CHANGES: dict[str, tuple[str, Callable[[], None]]] = {}  # name -> (the module after whose import it is made, it)


def after(module: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(change: Callable[[], None]) -> Callable[[], None]:
        CHANGES[change.__name__] = (module, change)
        return change

    return register


def this_rank() -> int:
    return int(os.environ["RANK"])


def is_chosen_rank() -> bool:
    return os.environ["DPSCALE_TEST_RANK"] in (str(this_rank()), "all")


def leave(name: str, content: object) -> None:
    """Put one rank's finding into a file that is whole as soon as it is there."""
    path = Path(os.environ["DPSCALE_TEST_OUT"]) / f"{name}-{this_rank()}.json"
    temporary = path.with_suffix(".partial")
    temporary.write_text(json.dumps(content))
    temporary.rename(path)
