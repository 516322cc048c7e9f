"""One launch that times collectives: what is asked of it, and the two files that it leaves.

collectives.json holds what was measured and where, times.parquet every rank's every block of calls. The first is written
last and holds the digest of the other, so that a pair is whole or is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from dpscale.errors import Damaged, UserError
from dpscale.files import sha256_of, write_atomically
from dpscale.launched import Launched, Names, Sizes

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 1
FILE, TIMES = "collectives.json", "times.parquet"


@dataclass(frozen=True, kw_only=True)
class Run(Launched):
    """One launcher and topology of an experiment's collectives."""

    operations: Names  # rows of OPERATIONS
    dtypes: Names
    sizes: Sizes  # in bytes, rising
    blocks: int  # the most that are timed of an operation, dtype and size; each gives one value
    seconds_per_size: float  # fewer blocks, where they would take longer
    network: str | None = None  # file of an emulated one; None: the machine's own links

    @property
    def id(self) -> str:
        return f"{self.experiment}/collectives/{self.launcher}/{self.topology}"

    @property
    def folder(self) -> PurePosixPath:
        return PurePosixPath(self.experiment, "collectives", self.launcher, str(self.topology))


@dataclass(frozen=True, kw_only=True)
class Point:
    """One operation, dtype and size. What the backend can't do has a reason, and no block."""

    operation: str
    dtype: str
    size_bytes: int  # as it was exchanged: what of the size that was asked for divides into equal parts
    reason: str | None = None  # why it was not measured
    calls_per_block: int | None = None
    blocks: int = 0
    checked: int = 0  # results whose values were compared, over all ranks


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run leaves."""

    run: Run
    status: Literal["ok", "unavailable"]
    reason: str | None = None  # why it is not ok
    environment: dict[str, Any] = field(default_factory=dict)  # of rank 0's machine, and the code
    nodes: list[dict[str, Any]] = field(default_factory=list)  # of every node's machine, in the order of node ranks
    launch: dict[str, Any] = field(default_factory=dict)
    copy_GB_per_s: list[float] = field(default_factory=list)  # [rank], while all ranks copy
    oversubscribed: bool | None = None  # more threads than usable CPUs
    points: list[Point] = field(default_factory=list)
    times_sha256: str | None = None

    def write(self, folder: Path) -> None:
        """Write collectives.json: whole or not there."""
        text = json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, indent=1, allow_nan=False) + "\n"
        write_atomically(folder / FILE, text.encode())

    @classmethod
    def read(cls, path: Path) -> Result:
        """The result in a collectives.json.

        Raises:
            Damaged: unreadable, or its times.parquet is not the one it was written with.
            UserError: of another format.
        """
        remedy = f"delete {path.parent} and run the same command again"
        try:
            data = json.loads(path.read_text())
            if (found := data.pop("format_version")) != FORMAT_VERSION:
                raise UserError(f"{path}: format {found}, this code reads {FORMAT_VERSION}; {remedy}")
            points = [Point(**item) for item in data["points"]]
            result = cls(**{**data, "run": Run(**data["run"]), "points": points})
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{path}: no whole result ({type(error).__name__}: {error}); {remedy}") from None
        times = path.with_name(TIMES)
        if not times.is_file() or sha256_of(times) != result.times_sha256:
            raise Damaged(f"{times}: missing, cut or not of this result; {remedy}")
        return result


TIME_COLUMNS = ("operation", "dtype", "size_bytes", "block", "rank", "calls", "time_s")


def write_times(path: Path, columns: dict[str, list[Any]]) -> str:
    """Write times.parquet: a row per rank and block of calls, TIME_COLUMNS; returns its sha256."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"operation": pa.string(), "dtype": pa.string(), "time_s": pa.float64()}
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in TIME_COLUMNS])
    written = BytesIO()
    pq.write_table(pa.table({name: columns.get(name, []) for name in TIME_COLUMNS}, schema=schema), written)
    write_atomically(path, written.getvalue())
    return sha256_of(path)


def write_unavailable(run: Run, reason: str, folder: Path) -> None:
    """The two files of a run that can't be done here."""
    from dpscale.environment import describe_machine

    digest, environment = write_times(folder / TIMES, {}), describe_machine("cpu")
    result = Result(run=run, status="unavailable", reason=reason, environment=environment, times_sha256=digest)
    result.write(folder)


def read_times(result_path: Path) -> pd.DataFrame:
    """The times beside a collectives.json, as written by `write_times`."""
    import pandas as pd

    return pd.read_parquet(result_path.with_name(TIMES))
