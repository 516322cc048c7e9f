"""Errors that are the user's to mend. Entry points print their text alone; anything else keeps its traceback."""

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import wraps

PASSWORD = re.compile(r"(?<=://)[^/\s]+@")  # of user:password@host in a URL
LONGEST = 200  # characters of a value that a message shows


class UserError(ValueError):
    """Bad input or a missing need. The text names the value, the place and the remedy."""


class Damaged(UserError):
    """A result that is cut or changed, or whose other files are: nothing but a new measurement helps."""


class ConfigError(UserError):
    """The configuration can't be planned. The text has one line for each problem found."""

    def __init__(self, problems: Iterable[str]) -> None:
        super().__init__("\n".join(_on_one_line(problem) for problem in problems))


def _on_one_line(text: str) -> str:
    """A key may hold anything: a password stays untold, and what no terminal shows, or what would break the line, is written
    as Python does."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in PASSWORD.sub("***@", text))


def shown(value: object) -> str:
    """A value as a message shows it: as Python writes it, without passwords, and cut where nobody would read on."""
    try:
        text = PASSWORD.sub("***@", repr(value))
    except ValueError:  # Python writes no whole number of more than some thousand digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def suggest(wrong: object, valid: Iterable[str]) -> str:
    """The end of a message about an unknown name: its nearest valid spelling, if one is near, and all valid ones."""
    names = list(valid)
    near = difflib.get_close_matches(wrong if isinstance(wrong, str) else shown(wrong), names, n=1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"valid: {', '.join(names)}"


def _forget_stdout() -> None:
    """Whoever read it has seen enough, as `| head` does: nothing more is written, not even while Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def entry_point(main: Callable[[], int], failed: int = 1) -> Callable[[], int]:
    """A script's main, which ends with the text alone where something is the user's to mend: a file or a disk as well; and
    in silence where nobody reads its output any more.

    Args:
        failed: the exit code then.
    """

    @wraps(main)
    def saying() -> int:
        try:
            code = main()
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            _forget_stdout()
            return failed
        except (UserError, OSError) as error:
            print(error, file=sys.stderr)
            return failed

    return saying
