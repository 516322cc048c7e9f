"""Put a tag before each line that comes in. A rank starts it for all that it writes; see output.py.

It knows nothing of the project, so that it starts in milliseconds, and it ends when nobody writes to it any more: the last
words of a rank that was killed come through, whole lines or not.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # they are for the rank, which has something to say about them
    tag = f"[{sys.argv[1]}] ".encode()
    longest = select.PIPE_BUF - len(tag) - 1  # a write of up to PIPE_BUF bytes is not mixed with another process's
    while piece := sys.stdin.buffer.readline(longest):
        os.write(sys.stderr.fileno(), tag + piece.rstrip(b"\n") + b"\n")


if __name__ == "__main__":
    main()
