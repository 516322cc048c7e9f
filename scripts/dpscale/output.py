"""What a rank writes, with its number before each line: in the same way under every launcher, since the rank sees to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "tag.py"
STDOUT, STDERR = 1, 2
LAST_WORDS_S = 1.0  # more only where a child of a failing rank, such as a loader worker, outlives it


@contextmanager
def tagged(rank: int) -> Iterator[None]:
    """Within the block, all that this process and its children write, be it by Python or C++, goes to stderr line by line,
    each after `[rank N]`.

    A process of its own sees to it, by file descriptors: a thread would die with a killed rank, and take its last words along.
    """
    before = {descriptor: os.dup(descriptor) for descriptor in (STDOUT, STDERR)}
    # -I and -S: nothing of the user's is imported, and it starts in a fraction of the time
    command = [sys.executable, "-I", "-S", str(SCRIPT), f"rank {rank}"]
    tagger = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert tagger.stdin is not None
    for descriptor in before:
        os.dup2(tagger.stdin.fileno(), descriptor)
    tagger.stdin.close()
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, kept in before.items():
            os.dup2(kept, descriptor)
            os.close(kept)
        with suppress(subprocess.TimeoutExpired):
            tagger.wait(LAST_WORDS_S)  # srun ends what a task leaves behind
