"""How many floating-point operations the training of one sample asks for -> flops.json, which advice holds against a peak."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dpscale.errors import entry_point
from dpscale.files import write_sealed
from dpscale.flops import NotCounted, flops_per_sample
from dpscale.workloads.prepared import read_manifest


@entry_point
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a row of MODELS, or package.module:factory")
    parser.add_argument("--options", type=json.loads, default={}, help="its options, as JSON")
    parser.add_argument("--data", type=Path, required=True, help="folder of the prepared dataset")
    parser.add_argument("--out", type=Path, required=True, help="the file")
    args = parser.parse_args()
    samples = read_manifest(args.data).samples
    try:
        found = {"flops_per_sample": flops_per_sample(args.model, args.options, samples), "reason": ""}
    except NotCounted as error:
        found = {"flops_per_sample": None, "reason": str(error)}
    text = json.dumps({"model": args.model, **found}, indent=1, allow_nan=False)
    write_sealed(args.out, f"{text}\n".encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
