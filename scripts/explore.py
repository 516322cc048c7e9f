"""Tables -> explore.html, the page on which a reader filters cells and goes from each to its records."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpscale.config import FigureConfig
from dpscale.errors import entry_point
from dpscale.explorer.page import TABLES, render
from dpscale.files import sha256_of, write_sealed
from dpscale.tables import read_table
from dpscale.typed import validated


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--tables", type=Path, required=True, help="folder of the experiment's tables")
    parser.add_argument("--palette", default=FigureConfig().palette, help="one of seaborn's, as the figures'")
    parser.add_argument(
        "--rerun", required=True, help="command that measures a trial again, up to its experiment's folder"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    settings = validated(FigureConfig, {"palette": args.palette}, "figures")
    tables = {name: read_table(args.tables, name) for name in TABLES}
    source = f"records.csv sha256:{sha256_of(args.tables / 'records.csv')}"
    page = render(args.experiment, tables, settings, args.rerun, source)
    write_sealed(args.out, page.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
