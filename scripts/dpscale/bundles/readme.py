"""What a bundle says of itself: where it comes from, what each file is, how to check it and how to rebuild it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tabulate import tabulate

from dpscale.bundles.archive import CHECKSUMS
from dpscale.bundles.contents import CODE
from dpscale.figures import FIGURES

if TYPE_CHECKING:
    import pandas as pd

REBUILD = f"snakemake -s {CODE}/Snakefile --cores 2 --forceall"
KINDS = {  # name of a file -> what it is
    "record.json": "one trial: what was asked for, where it ran, versions, raw times of its segments, checks",
    "steps.parquet": "its raw times: every rank's every step, by phase",
    "monitor.parquet": "samples of ranks, GPUs and CPU packages meanwhile",
    "trial.log": "the output of its ranks",
    "asked.txt": "of a trial that is predicted: what decides it",
    "asked.log": "what went wrong while that was written",
    "collectives.json": "times of collectives alone: what was measured and where",
    "times.parquet": "their raw times: every rank's every block of calls",
    "run.log": "the output of their ranks",
    "calibration.json": "what predictions are made from",
    "ledger.jsonl": "a line per prediction, with its date, and per launch that tests one",
    "largest.json": "the search for the largest batch: every size that was tried",
    "search.log": "its output",
    "manifest.json": "a prepared dataset: its size, shape and checksums; the data themselves are not here",
    "advice.html": "what to do: a verdict, why, and what next",
    "flops.json": "operations of a sample's training",
    "explore.html": "its cells in linked views, whose links lead to records and logs",
    "methods.html": "the methods, in words fit for a paper",
}


def readme(
    name: str,
    targets: Sequence[str],
    files: Sequence[str],
    records: Mapping[str, pd.DataFrame],
    timings: Mapping[str, pd.DataFrame],
    source: str,
) -> str:
    """
    Args:
        targets: of Snakemake, that the results are of; none: all.
        files: names of all others in the bundle.
        records: experiment -> its table of records.
        timings: experiment -> its table of timings.
        source: the files that the configuration was merged from.
    """
    rebuild = " ".join([REBUILD, *targets])
    origin = [[experiment, *_origin(table, timings[experiment])] for experiment, table in records.items()]
    header = ["experiment", "launches", "measured from", "until (UTC)", "digest of the measuring code", "commit"]
    return f"""\
# {name}

How data-parallel training scales: measurements by [dpscale](dpscale/README.md), with the tables and figures made from them.

{tabulate(origin, header, tablefmt="github")}

A commit that ends with -dirty had changes that git did not know; the code as it was is in `{CODE}/`. Records hold the names of
machines, users' folders and programs' versions: look whether all of it may be published.

## Check it

```bash
sha256sum -c {CHECKSUMS}
```

## Rebuild it

Every table, figure and page is made again from the records, and from nothing else: here no rule can measure, and a
record that is missing or cut is an error. It takes the packages of `{CODE}/envs/requirements.txt`
(`make -C {CODE} .venv/run-ready && . {CODE}/.venv/bin/activate` installs them); `installed.txt` lists those of the
environment that this bundle was made in.

```bash
{rebuild}
sha256sum -c {CHECKSUMS}
```

Tables are then the same byte for byte, which the second command says. So are figures with the same versions of matplotlib and its fonts.

## To measure it again

Set `from_records: false` in `config.yaml` and put the folder of dpscale in its place; or give the one command that each
`record.json` holds as `launch.rerun`.

## What each file is

{tabulate([[f"`{path}`", meaning] for path, meaning in _meanings(files)], ["file", "what it is"], tablefmt="github")}

Every column of every table, every field of a record and every key of the configuration is explained in
[{CODE}/docs/reference.md]({CODE}/docs/reference.md).
The configuration was merged from {source}.
"""


def _origin(records: pd.DataFrame, timings: pd.DataFrame) -> list[str]:
    """Of measured trials: how many, from the first one's start to the last one's end, and by which code."""
    good = records[records.status == "ok"]
    if good.empty:
        return ["0", "", "", "", ""]
    codes, commits = (", ".join(sorted(set(good[column].dropna()))) for column in ("code_digest", "commit"))
    until = timings[timings.status == "ok"].ended_at.max()
    return [str(len(good)), str(good.started_at.min()), str(until), codes, commits]


def _meanings(files: Sequence[str]) -> Iterator[tuple[str, str]]:
    """A row per kind of file: those of trials, which are many, by their place alone."""
    yield "config.yaml", "the configuration as merged, with every default"
    yield "installed.txt", "packages of the environment that this bundle was made in"
    yield CHECKSUMS, "of all files but itself"
    yield f"{CODE}/", "the code, its documentation and its lock files"
    if any(file.startswith("own/") for file in files):
        yield "own/", "models and datasets of one's own"
    seen: set[str] = set()
    for file in sorted(files):
        if not file.startswith(("results/", "data/")):
            continue
        place, meaning = _meaning(PurePosixPath(file))
        if place not in seen:
            seen.add(place)
            yield place, meaning


def _meaning(file: PurePosixPath) -> tuple[str, str]:
    _, top, *way = file.parts
    known = KINDS.get(file.name, "a page for a browser" if file.suffix == ".html" else "")
    match way:
        case ["tables", name]:
            return str(file), f"table {PurePosixPath(name).stem}: {CODE}/docs/reference.md#{PurePosixPath(name).stem}"
        case ["figures", *more, name] if (row := FIGURES.get(name.partition(".")[0])) is not None:
            place = "/".join(["results", top, "figures", *more, f"{name.partition('.')[0]}.*"])
            return place, f"{row.question}{' (for print)' if more else ''}"
        case ["trials", *_]:
            return f"results/{top}/trials/<strategy>/<launcher>/<topology>/r<repeat>/{file.name}", known
        case ["collectives" | "largest" as kind, *_]:
            return f"results/{top}/{kind}/.../{file.name}", known
    return str(file), known
