"""Unlock the current folder if a Snakemake that lives no more has left it locked. What `make run` does first."""

from __future__ import annotations

import subprocess
import sys

from dpscale.errors import UserError
from dpscale.lock import is_left_behind


def main() -> int:
    try:
        if not is_left_behind():
            return 0
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    print("a Snakemake was killed here: unlocking the folder")
    return subprocess.run([sys.executable, "-m", "snakemake", "--unlock", *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
