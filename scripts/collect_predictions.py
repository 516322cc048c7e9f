"""The ledger of one experiment's predictions, and what was measured -> the table `prediction`, as a csv file.

What was measured of them goes into the ledger, too: there it stays.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpscale.errors import entry_point
from dpscale.files import write_sealed
from dpscale.forecasting.ledger import LEDGER, append_launches, refuse_lost
from dpscale.tables import read_table
from dpscale.tables.prediction import launches_of, make_table


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment")
    parser.add_argument("--predictions", type=Path, required=True, help="folder of the ledger, if there is one")
    parser.add_argument("--tables", type=Path, required=True, help="folder of the experiment's tables")
    parser.add_argument("--out", type=Path, required=True, help="the csv file")
    args = parser.parse_args()
    refuse_lost(args.predictions)
    ledger = append_launches(args.predictions / LEDGER, list(launches_of(read_table(args.tables, "timings"))))
    table = make_table(args.experiment, ledger)
    write_sealed(args.out, table.to_csv(index=False).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
