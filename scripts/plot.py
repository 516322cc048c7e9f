"""Tables -> one figure, in the formats of the given file names."""

from __future__ import annotations

import argparse
import json
from io import BytesIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # whatever MPLBACKEND says: no window is ever wanted

from dpscale.config import FigureConfig
from dpscale.figures import FIGURES, make_figure
from dpscale.record import write_atomically
from dpscale.tables import read_table
from dpscale.typed import validated

# Without dates, so that the same tables give the same bytes.
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the experiment's tables")
    parser.add_argument("--settings", type=json.loads, default={}, help="the config's figures, as JSON")
    parser.add_argument("--out", type=Path, nargs="+", required=True)
    args = parser.parse_args()
    settings = validated(FigureConfig, args.settings, "figures")
    tables = {name: read_table(args.tables, name) for name in FIGURES[args.figure].tables}
    figure = make_figure(args.figure, tables, settings)
    for path in args.out:
        drawn, kind = BytesIO(), path.suffix.removeprefix(".")
        figure.savefig(drawn, format=kind, dpi=settings.png_dpi, metadata=UNDATED[kind])
        write_atomically(path, drawn.getvalue())


if __name__ == "__main__":
    main()
