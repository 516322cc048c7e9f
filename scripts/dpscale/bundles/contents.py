"""Which files make up a bundle: what Snakemake says that the rules declare, if all of it is there and none is out of date.

So a new table, figure or page is in it without being named here.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from dpscale.code import own_sources
from dpscale.config import Config
from dpscale.damage import what_is_wrong
from dpscale.errors import UserError
from dpscale.files import sha256_of
from dpscale.forecasting import calibration_file
from dpscale.forecasting.ledger import LEDGER
from dpscale.own import is_own
from dpscale.workloads.prepared import MANIFEST

if TYPE_CHECKING:
    import pandas as pd

CHECKOUT = Path(__file__).parents[3]
CODE = "dpscale"  # its folder in a bundle
CODE_FILES = ("LICENSE", "Makefile", "README.md", "Snakefile", "docs", "envs", "pyproject.toml", "scripts", "workflow")
NAMED = 10  # files that a refusal names
NO_RULE = re.compile(r"MissingRuleException:\nNo rule to produce (\S+)")  # as Snakemake says it
REMEDY = "`make run`, by the same PRESET= and ARGS=, sets aside what is, and measures or makes it again"
UP_TO_DATE = "no update"  # as `snakemake --summary` has it
CONFIG_HEADER = """\
# As merged from {source}, with every default. Changed are only results_dir and data_dir ({results} and {data} where
# it was measured), from_records: here nothing can be measured, and measured_by: how it was there. Experiments that are not
# in the bundle are left out.
"""


@dataclass(frozen=True)
class Made:
    """A file that the workflow makes."""

    path: Path
    logs: tuple[Path, ...]
    status: str  # why it is not up to date, if it is not
    is_up_to_date: bool


def made_by_workflow(targets: Sequence[str], configs: Sequence[Path], experiments: Iterable[str]) -> list[Made]:
    """All files that the targets need and rules make.

    Args:
        configs: config.yaml, and those that go over it.
        experiments: of the configuration.

    Raises:
        UserError: Snakemake can't say, for the reason that it gives; or there is no such target.
    """
    over = ["--configfile", *map(str, configs[1:])] if configs[1:] else []
    command = [sys.executable, "-m", "snakemake", *targets, "--summary", *over]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if (unknown := NO_RULE.search(f"{done.stdout}\n{done.stderr}")) is not None:
        raise UserError(
            f"{unknown[1]!r}: no experiment, named target or file that {', '.join(map(str, configs))} gives; experiments: "
            f"{', '.join(experiments)}; one of a preset takes PRESET=, as in make bundle PRESET=FILE TARGETS={unknown[1]}"
        )
    if done.returncode != 0:
        raise UserError(f"snakemake --summary: {done.stderr.strip() or done.stdout.strip()}")
    return read_summary(done.stdout)


def read_summary(text: str) -> list[Made]:
    """What `snakemake --summary` prints: a header, and a line for each file."""
    lines = text[text.index("output_file\t") :].splitlines()
    return [
        Made(
            path=Path(row["output_file"]),
            logs=tuple(Path(log) for log in row["log-file(s)"].split(",") if log != "-"),
            status=row["status"],
            is_up_to_date=row["plan"] == UP_TO_DATE and row["status"] != "missing",
        )
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    ]


def refuse_unfinished(made: Sequence[Made]) -> None:
    """Raises UserError: names files that are not there, or are older than what they are made from."""
    late = sorted(
        (file for file in made if not file.is_up_to_date),
        key=lambda file: (file.status != "missing", file.status == "ok"),  # what others wait for, first
    )
    if late:
        named = [f"{file.path} ({file.status if file.status != 'ok' else 'made from such'})" for file in late[:NAMED]]
        more = [f"... and {len(late) - NAMED} more"] if len(late) > NAMED else []
        raise UserError(
            "\n".join(["missing or out of date; run snakemake first, or leave them out of the targets:", *named, *more])
        )


def refuse_damaged(files: Iterable[Path], results: Path) -> None:
    """Raises UserError: names files of the results folder that are not as they were measured or made, which no time of a
    file says; or the ledger of predictions, if it is such a one."""
    if wrong := [said for path in files if (said := what_is_wrong(path, results))]:
        more = [f"... and {len(wrong) - NAMED} more"] if len(wrong) > NAMED else []
        raise UserError("\n".join([f"damaged; {REMEDY}:", *wrong[:NAMED], *more]))


def refuse_foreign_records(results: Path, records: Mapping[str, pd.DataFrame]) -> None:
    """Raises UserError: a record is not the one that the tables were made from, whatever the times of the files say.

    Args:
        records: experiment -> its table of records.
    """
    for table in records.values():
        for row in table.itertuples():
            path = results / str(row.record)
            if row.status != "missing" and (not path.is_file() or sha256_of(path) != row.record_sha256):
                raise UserError(f"{path}: not the record that the tables are made from; run snakemake first")


def results_of(made: Sequence[Made], config: Config) -> Iterator[tuple[str, Path]]:
    """(name in the bundle, file) of results, of the logs that lie beside them, and of what is said of the data."""
    results, data = Path(config.results_dir), Path(config.data_dir)
    for file in made:
        if file.path.is_relative_to(results):
            beside = [log for log in file.logs if log.parent == file.path.parent and log.is_file()]
            if file.path.name == calibration_file.FILE:  # no rule's output, for it only grows
                beside.append(file.path.with_name(LEDGER))
            for path in (file.path, *beside):
                yield f"results/{path.relative_to(results).as_posix()}", path
        elif file.path.is_relative_to(data) and file.path.name == MANIFEST:
            yield f"data/{file.path.relative_to(data).as_posix()}", file.path


def code_files() -> Iterator[tuple[str, Path]]:
    """The code, without which no table can be made again."""
    for name in CODE_FILES:
        top = CHECKOUT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{CODE}/{path.relative_to(CHECKOUT).as_posix()}", path


def own_code_files(config: Config) -> Iterator[tuple[str, Path]]:
    """Models and datasets of the user's own."""
    for experiment in config.experiments.values():
        for name in filter(is_own, (experiment.workload.model, experiment.workload.dataset)):
            for module, path in own_sources(name).items():
                folder = module.replace(".", "/") + ("/__init__" if path.name == "__init__.py" else "")
                yield f"own/{folder}.py", path


def config_text(config: Config, experiments: Sequence[str], source: str, measured_by: str) -> str:
    """The configuration of a bundle of these experiments, which reads as the one that was measured by, but measures
    nothing."""
    kept = {name: config.experiments[name] for name in experiments}
    here = {"results_dir": "results", "data_dir": "data", "from_records": True, "measured_by": measured_by}
    moved = config.model_copy(update={**here, "experiments": kept})
    header = CONFIG_HEADER.format(source=source, results=config.results_dir, data=config.data_dir)
    return header + yaml.safe_dump(moved.model_dump(mode="json", by_alias=True), sort_keys=False, allow_unicode=True)


def installed() -> str:
    """Packages of this environment, as pip freeze names them."""
    return "".join(sorted({f"{one.name}=={one.version}\n" for one in distributions()}, key=str.lower))
