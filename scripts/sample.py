"""Sample what the ranks and devices of this node use, until stdin is closed. Started by local rank 0; see sampling.py."""

from __future__ import annotations

import argparse

from dpscale.launching.attempt import die_with_parent
from dpscale.monitoring.sampling import sample_until_told, sources_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interval-s", type=float, required=True, help="seconds from one sample to the next")
    parser.add_argument("--rank", action="append", default=[], metavar="RANK:PID", help="a rank of this node")
    parser.add_argument("--uuid", action="append", default=[], help="a GPU that the ranks use")
    parser.add_argument("--cpus", required=True, help="that any rank may run on, with commas")
    parser.add_argument("--workers", action="store_true", help="ranks have loader workers")
    args = parser.parse_args()
    die_with_parent()
    pids = {int(rank): int(pid) for rank, pid in (text.split(":") for text in args.rank)}
    sources, absent = sources_of(pids, args.uuid, [int(cpu) for cpu in args.cpus.split(",")], args.workers)
    sample_until_told(sources, absent, args.interval_s)


if __name__ == "__main__":
    main()
