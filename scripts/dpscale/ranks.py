"""One rank from its start to its end, whatever it runs: what it writes is tagged, and why it fails is put down."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from dpscale.errors import UserError
from dpscale.launching.attempt import die_with_parent, write_failure
from dpscale.output import tagged
from dpscale.world import launched_rank


def be_rank(run: Callable[[int], object], drafts: Path) -> None:
    """Call `run` with this rank's number; if it raises, the process ends with the error shown and put down in `drafts`."""
    with ExitStack() as at_end:
        at_end.callback(_end_workers)
        try:
            die_with_parent()
            rank = launched_rank()
            at_end.enter_context(tagged(rank))
            run(rank)
        except Exception as error:  # noqa: BLE001 - put down, shown, and ended with: whatever it is
            traceback.print_exception(error, limit=0 if isinstance(error, UserError) else None)
            write_failure(drafts, error)
            sys.exit(1)


def _end_workers() -> None:
    """Of a loader that has not come to its end: they leave a TERM to their rank, and Python would wait for them for ever."""
    for worker in multiprocessing.active_children():
        worker.kill()
