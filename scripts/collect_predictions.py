"""The ledger of one experiment's predictions, and what was measured -> the table `prediction`, as a csv file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpscale.errors import entry_point
from dpscale.files import write_sealed
from dpscale.forecasting.ledger import LEDGER, read_ledger
from dpscale.tables import read_table
from dpscale.tables.prediction import make_table


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--predictions", type=Path, required=True, help="folder of the ledger, if there is one")
    parser.add_argument("--tables", type=Path, required=True, help="folder of the experiment's tables")
    parser.add_argument("--out", type=Path, required=True, help="the csv file")
    args = parser.parse_args()
    table = make_table(args.experiment, read_ledger(args.predictions / LEDGER), read_table(args.tables, "timings"))
    write_sealed(args.out, table.to_csv(index=False).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
