"""Tables -> one figure, in the formats of the given file names; or as it is for print, in both widths, with its caption."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # whatever MPLBACKEND says: no window is ever wanted

from dpscale.config import FigureConfig
from dpscale.errors import entry_point
from dpscale.figures import FIGURES, render, render_for_print
from dpscale.files import sha256_of, write_sealed
from dpscale.tables import read_table
from dpscale.typed import validated


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the experiment's tables")
    parser.add_argument("--settings", type=json.loads, default={}, help="the config's figures, as JSON")
    parser.add_argument(
        "--out", type=Path, nargs="+", required=True, help="<figure>.<format>, or <figure>.<width>.<format>"
    )
    parser.add_argument("--for-print", action="store_true")
    args = parser.parse_args()
    settings = validated(FigureConfig, args.settings, "figures")
    row = FIGURES[args.figure]
    tables = {name: read_table(args.tables, name) for name in row.tables}
    origin = args.tables / f"{row.source}.csv"
    source = f"{origin.name} sha256:{sha256_of(origin)}"  # which scripts/trace_figure.py looks for
    endings = {path: path.name.removeprefix(f"{args.figure}.") for path in args.out}
    if args.for_print:
        files = render_for_print(args.figure, tables, settings, source)
    else:
        files = render(args.figure, tables, settings, list(endings.values()), source)
    for path, ending in endings.items():
        write_sealed(path, files[ending])
    return 0


if __name__ == "__main__":
    sys.exit(main())
