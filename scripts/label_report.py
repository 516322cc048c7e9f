"""Mend Snakemake's report, at the end of its page: a script names what is shown as a picture alone, for readers who hear it; a
style lets its menu cover nothing on narrow screens."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dpscale.errors import UserError, entry_point
from dpscale.files import write_atomically

FOLDER = Path(__file__).parents[1] / "workflow" / "report"
LABELS, NARROW = FOLDER / "labels.js", FOLDER / "narrow.css"
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
    mended = f"<style>\n{NARROW.read_text()}</style>\n<script>\n{LABELS.read_text()}</script>\n"
    write_atomically(args.report, f"{before}{mended}{end}{after}".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
