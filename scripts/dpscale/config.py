"""The typed configuration: shapes, types, ranges and spelling. What contradicts what is said in planning/contradictions.py.

Unknown keys are refused at every level. `load_config` turns whatever pydantic finds into lines that name the key's
path, the value and the remedy, so that a typing error costs a newcomer one look and no job.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from dpscale.advice.settings import AdviceConfig
from dpscale.cluster import ClusterConfig
from dpscale.collectives.settings import CollectivesConfig
from dpscale.errors import ConfigError, shown
from dpscale.scaling_model.settings import PredictionConfig
from dpscale.typed import Count, Flag, Listed, Name, Number, Strict, describe, each_once
from dpscale.workloads.datasets.settings import DatasetConfig

Device = Literal["cpu", "cuda"]
Backend = Literal["auto", "gloo", "nccl", "mpi"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]

MOST_REPEATS = 1000
PRINT_WIDTHS = ("one_column", "two_columns")

# Rules of the workflow, and a folder of the results: an experiment of that name could not be told from them. So are
# plot_<figure>.
RESERVED_NAMES = {
    "advice",
    "advise",
    "all",
    "bench",
    "collect",
    "collect_collectives",
    "collect_predictions",
    "collectives",
    "compare",
    "comparisons",
    "explore",
    "count_flops",
    "fetch_dataset",
    "figures",
    "largest_batch",
    "methods",
    "pages",
    "plan",
    "predict",
    "prepare",
    "prepare_dataset",
    "print_figures",
    "records",
    "report",
    "tables",
    "time_collectives",
    "trial",
    "asked_of_trial",
}


def _rising(values: list[float]) -> list[float]:
    if values != sorted(set(values)):
        raise ValueError("give them in rising order, each once")
    return values


def _folder(path: str) -> str:
    """As Snakemake writes it in the names of files: ~ is somebody's home, and no slash is there twice."""
    if not path.isprintable() or {"{", "}"} & set(path):  # what stands in braces is a wildcard to Snakemake
        raise ValueError("a folder's name is without braces, tabs and line breaks; choose another")
    path = os.path.normpath(os.path.expanduser(path))
    if path.startswith("-"):
        raise ValueError("programs take a name that begins with a hyphen for an option; choose another")
    return path


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """They travel as JSON, on command lines and into records."""
    try:
        same = json.loads(json.dumps(options, allow_nan=False)) == options
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"only numbers, texts, true, false, null, and lists and keys with those: {error}") from None
    if not same:
        raise ValueError("keys are texts; write them in quotes")
    return options


Milestones = Annotated[list[Annotated[Number, Field(gt=0)]], Field(min_length=1), AfterValidator(_rising)]
Folder = Annotated[str, Field(min_length=1), AfterValidator(_folder)]


class ScheduleConfig(Strict):
    """What the learning rate is of the optimiser's own, step by step."""

    kind: Literal["constant", "step", "cosine"] = Field(
        "constant",
        description="after the warm-up: unchanged, times gamma at each milestone, or falling to 0 at the end",
    )
    warmup_epochs: Number = Field(
        0.0,
        ge=0,
        description="first epochs, in which it rises in proportion to the step; they are measured as any other",
    )
    milestones: Milestones | None = Field(
        None, description="step only: after how many epochs it falls, such as [30, 60]"
    )
    gamma: Number | None = Field(None, gt=0, lt=1, description="step only: what it is multiplied by; null = 0.1")

    @model_validator(mode="after")
    def _of_its_kind(self) -> ScheduleConfig:
        if self.kind == "step" and self.milestones is None:
            raise ValueError("kind: step needs milestones; give them, such as [30, 60, 80]")
        for key in ("milestones", "gamma"):
            if self.kind != "step" and getattr(self, key) is not None:
                raise ValueError(f"{key} goes with kind: step; remove it")
        return self


class OptimizerConfig(Strict):
    """One of torch.optim's, by its name in lower case."""

    name: Literal["adadelta", "adam", "adamw", "sgd"] = Field("adadelta", description="which of torch.optim's")
    lr: Number = Field(0.5, gt=0, description="learning rate, at its highest")
    lr_reference_batch: Count | None = Field(
        None,
        description="samples per step that lr is meant for: lr grows in proportion with the global batch; null = it does not",
    )
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    momentum: Number | None = Field(None, ge=0, lt=1, description="sgd only; null = 0")
    weight_decay: Number = Field(0.0, ge=0, description="L2 penalty (decoupled for adamw)")
    clip_norm: Number | None = Field(None, gt=0, description="largest norm of the whole gradient; null = not clipped")


class WorkloadConfig(Strict):
    """What is trained, on what, by which rule: the same for every strategy of an experiment."""

    model: str = Field("convnet", description="a row of MODELS, or your own: package.module:factory")
    model_options: Annotated[dict[str, Any], AfterValidator(_plain)] = Field(
        default_factory=dict, description="options of that row, e.g. {dropout: false}, or of your factory"
    )
    dataset: str = Field("digits", description="a row of DATASETS, or your own: package.module:factory")
    train_samples: Count | None = Field(None, description="use only the first so many training samples; null = all")
    test_samples: Count | None = Field(None, description="use only the first so many test samples; null = all")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)


class BatchConfig(Strict):
    """The batch rule: `per_device` keeps each device's share (weak scaling), `global` the whole (strong scaling)."""

    per_device: Count | Literal["largest"] | None = Field(
        None, description="samples per device and step: weak scaling; largest = what fits, for each cell, on CUDA"
    )
    headroom_percent: Number | None = Field(
        None, ge=0, lt=100, description="largest only: how far below what just fits the batch stays; null = 5"
    )
    global_: Count | None = Field(None, alias="global", description="samples per step in all: strong scaling")

    @field_validator("per_device", mode="wrap")
    @classmethod
    def _count_or_largest(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """One message, where each branch of the union would have its own."""
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise ValueError("input should be greater than or equal to 1")
        try:
            return validate(value)
        except ValidationError:
            raise ValueError("input should be an integer, or largest") from None

    @model_validator(mode="after")
    def _one_rule(self) -> BatchConfig:
        if (self.per_device is None) == (self.global_ is None):
            raise ValueError("give exactly one of per_device (weak scaling) and global (strong scaling)")
        if self.headroom_percent is not None and self.per_device != "largest":
            raise ValueError("headroom_percent goes with per_device: largest; remove it")
        return self


class StrategyConfig(Strict):
    """A named variant of a row of STRATEGIES. Keys beyond these are that row's own options."""

    model_config = ConfigDict(extra="allow")

    base: str | None = Field(None, min_length=1, description="the row of STRATEGIES; null = the variant's own name")
    precision: Precision | None = Field(None, description="overrides the experiment's precision")
    compile: Flag | None = Field(None, description="overrides the experiment's compile")
    channels_last: Flag | None = Field(None, description="overrides the experiment's channels_last")
    explain: Flag | None = Field(None, description="overrides the experiment's explain")
    launchers: Listed | None = Field(None, description="overrides the experiment's launchers")
    topologies: Listed | None = Field(None, description="overrides the experiment's topologies")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ExperimentConfig(Strict):
    """One workload under every strategy x launcher x topology that is listed and applies."""

    workload: WorkloadConfig = Field(default_factory=WorkloadConfig)
    device: Device = Field("cpu", description="where the models are trained")
    backend: Backend = Field("auto", description="auto = nccl on cuda, gloo on the CPU")
    precision: Precision = Field(
        "fp32", description="of compute: IEEE fp32, or on CUDA tf32; bf16; fp16 with a gradient scaler, on CUDA"
    )
    compile: Flag = Field(False, description="torch.compile the model; its time is reported apart")
    channels_last: Flag = Field(False, description="images and convolutions in channels-last memory format")
    strategies: dict[Name, StrategyConfig] = Field(min_length=1, description="name -> variant")
    launchers: Listed = Field(["spawn"], description="rows of LAUNCHERS")
    topologies: Listed = Field(description="nodes x devices_per_node, e.g. [1x1, 1x2]")
    batch: BatchConfig
    epochs: Count | None = Field(None, description="whole epochs, warm-up included; or give steps")
    warmup_epochs: Count | None = Field(
        None, description="the first of these epochs, kept out of every result; default 1"
    )
    steps: Count | None = Field(None, description="optimiser steps, warm-up included, instead of epochs")
    warmup_steps: Count | None = Field(
        None, description="the first of these steps, kept out of every result; default 10"
    )
    evaluate: bool = Field(True, description="evaluate the whole test set after each epoch (or after the steps)")
    explain: Flag = Field(
        False,
        description="after each training under ddp some 400 steps under controls, which say where a step's time goes",
    )
    threads_per_rank: Count = Field(1, description="CPU threads of each rank, for every strategy and launcher alike")
    loader_workers: int = Field(0, ge=0, le=1000, description="loader processes per rank; 0 = the rank itself")
    monitor_interval_s: Number | None = Field(
        0.5, ge=0.05, le=60, description="from one sample of ranks and devices to the next; null = none is taken"
    )
    collectives: CollectivesConfig = Field(default_factory=CollectivesConfig)
    prediction: PredictionConfig = Field(default_factory=PredictionConfig)
    repeats: Count = Field(
        3, le=MOST_REPEATS, description="separate launches of each cell; from 6 on there is a 95 % interval"
    )
    placebo: bool = Field(
        False,
        description="measure one cell again under the name placebo, the first of the plan on the most devices: the noise floor",
    )
    seed: int = Field(
        0, ge=0, lt=2**32, description="seeds of repeat r, and the order of its trials, are derived from seed + r"
    )
    references: Annotated[list[str], AfterValidator(each_once)] = Field(
        [], description="sets of published numbers to lay over ours, rows of REFERENCES"
    )
    mixed_nodes: bool = Field(False, description="let records of different classes of machine into one table")
    timeout_s: Number = Field(1800.0, gt=0, le=1e7, description="a trial that runs longer is ended and fails")
    collective_timeout_s: Number = Field(
        300.0, gt=0, le=1e7, description="a rank that waits longer for the others fails"
    )
    checkpoint_interval_s: Number | None = Field(
        600.0,
        ge=0,
        le=1e7,
        description="after an epoch, a training whose last checkpoint is that old is saved (0: after each); a signal of a "
        "scheduler saves it at once; null = never",
    )

    @model_validator(mode="after")
    def _epochs_or_steps(self) -> ExperimentConfig:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of epochs and steps")
        if self.epochs is None and self.warmup_epochs is not None:
            raise ValueError("warmup_epochs goes with epochs; use warmup_steps beside steps")
        if self.steps is None and self.warmup_steps is not None:
            raise ValueError("warmup_steps goes with steps; use warmup_epochs beside epochs")
        return self


class PrintConfig(Strict):
    """How figures for print look: vector graphics in a journal's two widths, made by `snakemake print_figures`."""

    one_column_mm: Number = Field(89.0, ge=60, le=200, description="width of a figure in one column: 3.5 inches")
    two_columns_mm: Number = Field(183.0, ge=100, le=400, description="width of a figure over two columns: 7.2 inches")
    font_size_pt: Number = Field(7.0, ge=6, le=14, description="size of all text; none is smaller than 6 pt")


class FigureConfig(Strict):
    """How figures look. Changing these re-makes figures and nothing else."""

    width_mm: Number = Field(180.0, ge=60, le=500, description="width of a figure")
    font_size_pt: Number = Field(9.0, ge=5, le=24, description="size of all text but titles")
    png_dpi: Count = Field(200, le=1200, description="resolution of the png files; svg and pdf are vector graphics")
    palette: Literal["colorblind", "deep", "muted", "dark"] = Field("colorblind", description="one of seaborn's")
    print: PrintConfig = Field(default_factory=PrintConfig)

    @property
    def printed(self) -> dict[str, FigureConfig]:
        """Name of a width -> how figures of that width look in print."""
        widths = dict(zip(PRINT_WIDTHS, (self.print.one_column_mm, self.print.two_columns_mm), strict=True))
        return {
            name: self.model_copy(update={"width_mm": width_mm, "font_size_pt": self.print.font_size_pt})
            for name, width_mm in widths.items()
        }


class Config(Strict):
    """All of config.yaml."""

    results_dir: Folder = Field("results", description="everything that a run makes")
    data_dir: Folder = Field(
        "data", description="prepared datasets; downloads/ in it: the files of those that are fetched"
    )
    partial: Flag = Field(False, description="tables and figures from what is there; start no trial")
    from_records: Flag = Field(
        False,
        description="as in an unpacked bundle: tables, figures and pages from the records alone, all of which must be there; "
        "no rule can measure",
    )
    measured_by: str | None = Field(
        None,
        description="beside from_records: the command, up to the results folder, by which a trial was measured where the bundle "
        "was made, as explore.html shows it",
    )
    datasets: dict[str, DatasetConfig] = Field(default_factory=dict, description="dataset -> where its files lie")
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    figures: FigureConfig = Field(default_factory=FigureConfig)
    advice: AdviceConfig = Field(default_factory=AdviceConfig)
    experiments: dict[Name, ExperimentConfig] = Field(min_length=1, description="name -> experiment")
    more_repeats: dict[Name, dict[str, Annotated[Count, Field(le=MOST_REPEATS)]]] = Field(
        default_factory=dict,
        description="experiment -> {strategy/launcher/topology: its repeats, where they are more than the experiment's}; "
        "`make more` writes it to more.yaml; what is not planned here counts for nothing",
    )

    @model_validator(mode="after")
    def _whole_or_partial(self) -> Config:
        if self.partial and self.from_records:
            raise ValueError(
                "partial: true takes what is there, from_records: true asks for all; set one of them to false"
            )
        return self

    def plan_json(self, experiments: Collection[str]) -> str:
        """What decides the plans of these experiments, as JSON: a change elsewhere in the config makes nothing again."""
        names = set(experiments)
        keep: dict[str, bool | set[str]] = {"datasets": True, "experiments": names, "more_repeats": names}
        return self.model_dump_json(include=keep, by_alias=True, exclude_defaults=True)

    @field_validator("experiments")
    @classmethod
    def _names_are_no_targets(cls, experiments: dict[str, ExperimentConfig]) -> dict[str, ExperimentConfig]:
        if reserved := sorted(name for name in experiments if name in RESERVED_NAMES or name.startswith("plot_")):
            raise ValueError(f"{', '.join(reserved)}: the name of a target of the Snakefile; choose another")
        return experiments


def _half_characters(data: Any) -> Iterator[str]:
    """Places of texts that can't be written into a file: YAML lets "\\ud800" pass."""
    waiting, seen = [("", data)], set()
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str) and any("\ud800" <= sign <= "\udfff" for sign in value):
            yield place or "top level"
        if isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))  # an anchor may stand for what it is in
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in items:
                name = key if isinstance(key, str) else shown(key)
                below = f"{place}.{name}" if place else name
                waiting += [(below, inner), *([(below, key)] if isinstance(key, str) else [])]


def load_config(data: dict[str, Any], source: str = "config.yaml") -> Config:
    """The typed form of a parsed configuration.

    Raises:
        ConfigError: one line per problem: `source: path = value: what is wrong; remedy`.
    """
    if half := list(_half_characters(data)):
        raise ConfigError(
            f"{source}: {place}: holds half of a character, which no file can; write it anew" for place in half
        )
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{source}: {describe(item)}" for item in error.errors()) from None
