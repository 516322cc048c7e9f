"""Unlock the current folder if a Snakemake that lives no more has left it locked. What `make run` does first."""

from __future__ import annotations

import subprocess
import sys

from dpscale.errors import entry_point
from dpscale.lock import is_left_behind


@entry_point
def main() -> int:
    if not is_left_behind():
        return 0
    print("a Snakemake was killed here: unlocking the folder")
    return subprocess.run([sys.executable, "-m", "snakemake", "--unlock", *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
