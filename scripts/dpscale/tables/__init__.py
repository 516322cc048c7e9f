"""Records -> tidy DataFrames. TABLES is the table of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dpscale.environment import CLASS_FACTS
from dpscale.errors import Damaged, UserError
from dpscale.files import refuse_changed
from dpscale.record import Record
from dpscale.references import Published
from dpscale.tables.causes import causes_of_cells, stragglers
from dpscale.tables.comparisons import compare
from dpscale.tables.invariants import refuse_contradictions
from dpscale.tables.monitor import Samples, monitor, startup, timeline
from dpscale.tables.references import references
from dpscale.tables.schema import OF_TWO_SETS, TABLES, TEXTS, Measured, frame
from dpscale.tables.summary import summarize
from dpscale.tables.trials import evaluations, losses, records, timings_of

if TYPE_CHECKING:
    import pandas as pd


def read_table(folder: Path, name: str) -> pd.DataFrame:
    """A table as it was written. Texts stay texts, even a strategy called `nan`; only an empty cell is a missing value.

    Raises:
        Damaged: it was cut or edited since; without a seal, a row of it is cut.
    """
    import pandas as pd

    path = folder / f"{name}.csv"
    refuse_changed(path, "delete it and run snakemake again")
    kinds: dict[Any, type] = {column: str for column in (TABLES | OF_TWO_SETS)[name] if column in TEXTS}
    try:
        return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=[""])
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise Damaged(f"{path}: not a whole table ({error}); delete it and run snakemake again") from None


def make_tables(
    measured: Sequence[Measured],
    mixed_nodes: bool = False,
    samples: Samples = MappingProxyType({}),
    digests: Mapping[str, str] = MappingProxyType({}),
    published: Mapping[str, Sequence[Published]] = MappingProxyType({}),
) -> dict[str, pd.DataFrame]:
    """All tables of one experiment, by name.

    Args:
        mixed_nodes: let records of different classes of machine into one table.
        samples: of the monitor, by the trial's id; those that are not given are not there.
        digests: of the files that records were read from, by the trial's id.
        published: numbers of others to lay over these, by the name of their set.

    Raises:
        UserError: a record is of another trial than planned, records come from different classes of machine, or a row
            contradicts itself.
    """
    refuse_foreign_records(measured)
    if not mixed_nodes:
        refuse_mixed_machines([record for _, record, _ in measured if record is not None and record.status == "ok"])
    timings = timings_of(measured, samples)
    refuse_contradictions("timings", timings)
    comparisons = compare(timings)
    summary = summarize(timings, comparisons)
    refuse_contradictions("summary", summary)
    of_devices = frame("monitor", monitor(measured, samples))
    return {
        "timings": timings,
        "summary": summary,
        "comparisons": comparisons,
        "losses": frame("losses", losses(measured)),
        "evaluations": frame("evaluations", evaluations(measured)),
        "causes": frame("causes", causes_of_cells(measured)),
        "stragglers": frame("stragglers", stragglers(measured)),
        "monitor": of_devices,
        "timeline": frame("timeline", timeline(measured, samples)),
        "startup": frame("startup", startup(measured)),
        "records": frame("records", records(measured, digests)),
        "published": references(published, [trial for trial, _, _ in measured], timings, of_devices),
    }


def refuse_foreign_records(measured: Sequence[Measured]) -> None:
    for trial, record, _ in measured:
        if record is not None and record.trial.planned != trial:
            raise UserError(
                f"{trial.id}: its record is of another configuration; run the same command again, or delete {trial.folder}"
            )


def refuse_mixed_machines(records: Sequence[Record]) -> None:
    refuse_mixed([(record.trial.id, [record.environment, *record.nodes]) for record in records], "trial")


def refuse_mixed(measured: Sequence[tuple[str, list[dict[str, Any]]]], rule: str) -> None:
    """Raises UserError: names the first fact in which the machines or their software differ, within a launch or between.

    Args:
        measured: (id, machines) of each launch.
        rule: that measures them again.
    """
    for fact in CLASS_FACTS:
        values: dict[Any, str] = {}
        for launch, machines in measured:
            for machine in machines:
                if fact in machine:
                    values.setdefault(machine[fact], f"{launch} on {machine['node']}")
        if len(values) > 1:
            (first, one), (second, other), *_ = values.items()
            raise UserError(
                f"records of different machines or software don't make one table: {fact} is {first!r} in {one} and "
                f"{second!r} in {other}; measure them again (snakemake --forcerun {rule}), or set mixed_nodes: true"
            )
