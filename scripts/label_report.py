"""Give what Snakemake's report shows as a picture alone a name, for readers who hear it: a script at the end of the page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpscale.errors import UserError, entry_point
from dpscale.files import write_atomically

LABELS = Path(__file__).parents[1] / "workflow" / "report" / "labels.js"
END = "</body>"


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="what `snakemake --report` wrote")
    args = parser.parse_args()
    page = args.report.read_text()
    before, end, after = page.rpartition(END)
    if not end:
        raise UserError(f"{args.report}: no end of a page in it; make it anew by snakemake --report {args.report}")
    write_atomically(args.report, f"{before}<script>\n{LABELS.read_text()}</script>\n{end}{after}".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
