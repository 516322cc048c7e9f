"""Errors that are the user's to mend. Entry points print their text alone; anything else keeps its traceback."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input or a missing need. The text names the value, the place and the remedy."""


class ConfigError(UserError):
    """The configuration can't be planned. The text has one line for each problem found."""


def suggest(wrong: object, valid: Iterable[str]) -> str:
    """The end of a message about an unknown name: its nearest valid spelling, if one is near, and all valid ones."""
    names = list(valid)
    near = difflib.get_close_matches(str(wrong), names, n=1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"valid: {', '.join(names)}"
