"""The tables of one experiment -> advice: the table `advice`, as a csv file, and a page to read."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dpscale.advice.page import page
from dpscale.advice.peak import Flops
from dpscale.advice.settings import AdviceConfig
from dpscale.advice.together import READS, advise
from dpscale.errors import entry_point
from dpscale.files import refuse_output, write_sealed
from dpscale.tables import read_table
from dpscale.tables.advice import make_table
from dpscale.typed import validated


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment")
    parser.add_argument("--tables", type=Path, required=True, help="folder of the experiment's tables")
    parser.add_argument("--flops", type=Path, help="what count_flops.py wrote, where a peak may be known")
    parser.add_argument("--settings", type=json.loads, default={}, help="the config's advice, as JSON")
    parser.add_argument("--table", type=Path, required=True, help="the csv file")
    parser.add_argument("--page", type=Path, required=True, help="the page")
    args = parser.parse_args()
    for path in (args.table, args.page):
        refuse_output(path, [] if args.flops is None else [args.flops])
    flops = None
    if args.flops is not None:
        counted = json.loads(args.flops.read_text())
        flops = Flops(counted["flops_per_sample"], counted["reason"])
    settings = validated(AdviceConfig, args.settings, "advice")
    sentences = advise({name: read_table(args.tables, name) for name in READS}, settings, flops)
    write_sealed(args.table, make_table(args.experiment, sentences).to_csv(index=False).encode())
    write_sealed(args.page, page(args.experiment, sentences).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
