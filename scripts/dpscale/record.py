"""What a trial leaves: raw times and the facts needed to trust them. No rates: see metrics.py.

Three files: record.json, and beside it steps.parquet with every rank's every step and monitor.parquet with what was sampled
meanwhile. record.json is written last and holds the digests of the others, so that the three are whole or are refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from dpscale.errors import Damaged, UserError
from dpscale.explaining.stamps import Block, Explained, Stamps, Use
from dpscale.files import sha256_of, write_atomically
from dpscale.phases import PHASE_COLUMNS
from dpscale.trial import Trial

if TYPE_CHECKING:
    import pyarrow

# 1: first format
# 2: trials with compile and channels_last; compile time and skipped steps
# 3: evaluations count predictions, of which a sequence of tokens has many; trials whose batch a search found
# 4: right answers among the five likeliest; the learning rate of each segment
# 5: attempts, and times of checkpoints; the survey of nodes before a trial that spans several
# samples of the monitor, CPU time of every node's machine, affinity and PSS of ranks, start-up, the cost of measuring
# blocks of steps under controls, and the bytes of their buckets
FORMAT_VERSION = 5
RECORD, STEPS, MONITOR = "record.json", "steps.parquet", "monitor.parquet"

Window = tuple[float, float]  # start and end, in s of the machine's monotonic clock


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The whole test set, once. What is right, and the loss, is null where ranks hold different weights."""

    windows_s: list[Window]  # [rank]
    samples: int  # counted over all ranks
    predictions: int  # one for each image, one for each token of a sequence
    correct: int | None  # of the predictions
    correct_top5: int | None  # the label is among the five likeliest; null with no more than five classes
    loss: float | None  # mean over all samples


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Steps between two meetings of all ranks: an epoch, or the warm-up steps, or the timed steps."""

    warmup: bool
    windows_s: list[Window]  # [rank], of the training steps
    samples: list[int]  # [rank], as the loader delivered them
    num_steps: int
    learning_rate: float  # of the last step, as the optimiser had it
    evaluation: Evaluation | None


@dataclass(frozen=True, kw_only=True)
class RankFacts:
    """One process. CPU time is that of the timed segments; memory is the peak of its whole life."""

    rank: int
    node: str  # SLURM's name of it, else the host's
    device_uuids: list[str]
    cpu_time_s: float
    peak_memory_bytes: int  # resident (VmHWM)
    proportional_memory_bytes: int | None  # resident after the steps, shared pages divided (PSS); null if not told
    peak_allocated_bytes: int | None  # CUDA: by tensors, and ...
    peak_reserved_bytes: int | None  # ... by torch's caching allocator; null on a CPU
    gpu_utilization_percent: float | None  # mean over its devices and the timed segments; null where not measured
    threads: int
    affinity: list[int]  # CPUs that it may run on
    startup_s: dict[str, float]  # STARTUP_PARTS, up to its first step
    measuring_s_per_step: float  # what the marks of a step cost it, timed after the steps


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trial, measured or not. Raises UserError where its parts contradict each other."""

    trial: Trial
    status: Literal["ok", "unavailable"]
    reason: str | None  # why it is not ok
    environment: dict[str, Any] = field(default_factory=dict)  # of rank 0's machine, and the code
    nodes: list[dict[str, Any]] = field(default_factory=list)  # of every node's machine, in the order of node ranks
    launch: dict[str, Any] = field(
        default_factory=dict
    )  # command, start and end: what only the launching process knows
    segments: list[Segment] = field(default_factory=list)
    ranks: list[RankFacts] = field(default_factory=list)
    steps_per_epoch: int | None = None
    machines_cpu_time_s: list[float] = field(
        default_factory=list
    )  # [node] of all its processes, over the timed segments
    oversubscribed: bool | None = None  # more threads than usable CPUs
    effective_precision: dict[str, str] = field(default_factory=dict)  # dtypes that were seen, not asked for
    compile_time_s: float | None = None  # of torch.compile, before any step; null without it
    skipped_steps: int | None = None  # by rank 0's gradient scaler, as gradients were not finite; null without one
    checkpoint_times_s: list[float] = field(default_factory=list)  # the slowest rank's, of each; in no other time
    weights_max_difference: float | None = None  # between ranks, after training; null if they exchange nothing
    survey: dict[str, Any] | None = None  # of all nodes before the training; null on one node
    monitor_absent: list[dict[str, str]] = field(
        default_factory=list
    )  # [node] kind of sample, or a GPU's UUID -> why none
    steps_sha256: str | None = None
    monitor_sha256: str | None = None
    explained: Explained | None = None  # null unless the trial asks for it

    def __post_init__(self) -> None:
        if (self.status == "ok") != (self.reason is None):
            raise UserError(f"{self.trial.id}: a record that is not ok gives its reason, and only such a one")
        if self.status != "ok":
            return
        n = self.trial.world_size
        if [facts.rank for facts in self.ranks] != list(range(n)):
            raise UserError(f"{self.trial.id}: facts of ranks {[facts.rank for facts in self.ranks]}, {n} expected")
        for index, segment in enumerate(self.segments):
            if not len(segment.windows_s) == len(segment.samples) == n:
                raise UserError(f"{self.trial.id}: segment {index} has not one time of each of {n} ranks")
            for rank, (start, end) in enumerate(segment.windows_s):
                if not (math.isfinite(start) and math.isfinite(end) and start < end):
                    raise UserError(f"{self.trial.id}: rank {rank} of segment {index} took {end - start} s")
        if self.trial.explain != (self.explained is not None):
            raise UserError(f"{self.trial.id}: explain is {self.trial.explain}, and its blocks say otherwise")
        if not self.timed_segments:
            raise UserError(f"{self.trial.id}: nothing but warm-up was measured")

    @property
    def timed_segments(self) -> list[Segment]:
        return [segment for segment in self.segments if not segment.warmup]

    def write(self, folder: Path) -> None:
        """Write record.json under a temporary name, sync it, rename it: whole or not there."""
        data = {"format_version": FORMAT_VERSION, **asdict(self)}
        explained = json.dumps(data.pop("explained"), separators=(",", ":"), allow_nan=False)
        text = json.dumps(data, indent=1, allow_nan=False).removesuffix("\n}")
        text += f',\n "explained": {explained}\n}}\n'  # on one line: there are thousands of stamps
        write_atomically(folder / RECORD, text.encode())

    @classmethod
    def write_unavailable(cls, trial: Trial, reason: str, environment: dict[str, Any], folder: Path) -> None:
        """The files of a trial that can't run on this machine: no step, and the reason."""
        steps, samples = write_steps(folder / STEPS, {}), write_samples(folder / MONITOR, [])
        cls(
            trial=trial,
            status="unavailable",
            reason=reason,
            environment=environment,
            steps_sha256=steps,
            monitor_sha256=samples,
        ).write(folder)

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in a record.json.

        Raises:
            Damaged: unreadable, or a file beside it is not the one it was written with.
            UserError: of another format.
        """
        remedy = f"delete {path.parent} and run the same command again"
        try:
            data = json.loads(path.read_text(), parse_constant=_refuse_constant)
            if (found := data.pop("format_version")) != FORMAT_VERSION:
                raise UserError(f"{path}: format {found}, this code reads {FORMAT_VERSION}; {remedy}")
            record = cls(**_typed(data))
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{path}: not a whole record ({type(error).__name__}: {error}); {remedy}") from None
        for name, digest in ((STEPS, record.steps_sha256), (MONITOR, record.monitor_sha256)):
            beside = path.with_name(name)
            if record.status == "ok" and (not beside.is_file() or sha256_of(beside) != digest):
                raise Damaged(f"{beside}: missing, cut or not of this record; {remedy}")
        return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    def window(pair: list[float]) -> Window:
        start, end = pair
        return start, end

    def segment(item: dict[str, Any]) -> Segment:
        evaluation = item["evaluation"]
        if evaluation is not None:
            evaluation = Evaluation(**{**evaluation, "windows_s": [window(pair) for pair in evaluation["windows_s"]]})
        return Segment(**{**item, "windows_s": [window(pair) for pair in item["windows_s"]], "evaluation": evaluation})

    def explained(item: dict[str, Any]) -> Explained:
        blocks = [Block(**{**block, "stamps": Stamps(**block["stamps"])}) for block in item["blocks"]]
        uses = [Use(**{**use, "window_s": window(use["window_s"])}) for use in item["uses"]]
        return Explained(**{**item, "blocks": blocks, "uses": uses})

    return {
        **data,
        "trial": Trial(**data["trial"]),
        "explained": None if data["explained"] is None else explained(data["explained"]),
        "segments": [segment(item) for item in data["segments"]],
        "ranks": [RankFacts(**item) for item in data["ranks"]],
    }


STEP_COLUMNS = ("segment", "warmup", "rank", "step", *PHASE_COLUMNS, "samples", "loss")


# of monitor.parquet, a row per reading; what a kind of reading does not have is null. Counters run on.
SAMPLE_COLUMNS = {
    "node": "int32",
    "kind": "string",  # rank, gpu, package (of CPUs), machine, monitor
    "name": "string",  # the rank's number, the GPU's UUID, the package's name
    "time_s": "float64",  # of the node's monotonic clock, as windows_s
    "cpu_time_s": "float64",  # so far
    "memory_bytes": "int64",  # resident; of a GPU what all processes have taken
    "utilization_percent": "int32",  # share of the last sampling period in which any kernel ran
    "power_w": "float64",
    "energy_j": "float64",  # so far
    "energy_range_j": "float64",  # where that counter begins again
    "sm_clock_MHz": "int32",
    "memory_clock_MHz": "int32",
    "temperature_C": "int32",
    "throttle_reasons": "string",
    "processes": "int32",  # that have a context on the GPU
}


def write_steps(path: Path, columns: dict[str, list[Any]]) -> str:
    """Write steps.parquet: a row per rank and step, STEP_COLUMNS; returns its sha256."""
    kinds = {"warmup": "bool"} | dict.fromkeys(("segment", "rank", "step", "samples"), "int32")
    return _write_table(path, columns, {name: kinds.get(name, "float64") for name in STEP_COLUMNS})


def write_samples(path: Path, readings: list[dict[str, Any]]) -> str:
    """Write monitor.parquet: a row per reading, SAMPLE_COLUMNS; returns its sha256."""
    columns = {name: [reading.get(name) for reading in readings] for name in SAMPLE_COLUMNS}
    return _write_table(path, columns, SAMPLE_COLUMNS)


def _write_table(path: Path, columns: dict[str, list[Any]], kinds: dict[str, str]) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in kinds.items()])
    written = BytesIO()
    pq.write_table(pa.table({name: columns.get(name, []) for name in kinds}, schema=schema), written)
    write_atomically(path, written.getvalue())
    return sha256_of(path)


def read_steps(record_path: Path) -> pyarrow.Table:
    """The steps beside a record.json, as written by `write_steps`."""
    import pyarrow.parquet as pq

    return pq.read_table(record_path.with_name(STEPS))


def read_samples(record_path: Path) -> pyarrow.Table:
    """The samples beside a record.json, as written by `write_samples`."""
    import pyarrow.parquet as pq

    return pq.read_table(record_path.with_name(MONITOR))


def is_there(path: Path, partial: bool) -> bool:
    """Whether a result is.

    Raises:
        UserError: it is not, and `partial` results will not do.
    """
    if not path.exists() and not partial:
        raise UserError(f"{path}: missing; run snakemake, or take what is there: --config partial=true")
    return path.exists()
