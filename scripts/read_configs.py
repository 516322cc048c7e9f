"""Read the configurations that a command line of snakemake names, so that one that is no YAML is refused by name and line:
Snakemake reads them before anything of ours, and names neither. What `make run` does first."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpscale.errors import entry_point
from dpscale.reading import read_config


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )  # --config is another option
    parser.add_argument("--configfile", "--configfiles", type=Path, nargs="+", action="extend", default=[])
    args, _ = parser.parse_known_args()
    for path in args.configfile:
        read_config(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
