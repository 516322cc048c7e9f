"""The contradictions between keys of the config, each in one line with the key's path, its value and the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator
from typing import Any

from dpscale.config import ExperimentConfig, StrategyConfig, WorkloadConfig
from dpscale.errors import ConfigError, suggest
from dpscale.launched import Topology
from dpscale.launching.launchers import LAUNCHERS
from dpscale.own import is_own, is_well_formed
from dpscale.planning import resolved
from dpscale.references import REFERENCES
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import Asked, Strategy
from dpscale.trial import LARGEST, PLACEBO
from dpscale.typed import NAME, Strict, validated
from dpscale.workloads.datasets import DATASETS, row_name
from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.models import MODELS
from dpscale.workloads.models.own import GIVEN as GIVEN_TO_FACTORIES
from dpscale.workloads.samples import Samples

SEARCHES_ON = {"cuda"}  # devices with a memory of their own, which refuses what does not fit
EXPLAINED_ROWS = ", ".join(name for name, row in STRATEGIES.items() if row.explains)
UNFIT_FOR_CPU = {
    "fp16": "CPUs compute fp16 some 50 times slower than fp32; use bf16, or device: cuda",
    "tf32": "a format of CUDA's tensor cores; use fp32, or device: cuda",
}


def of_datasets(datasets: dict[str, DatasetConfig]) -> Iterator[str]:
    for name, settings in datasets.items():
        row = DATASETS.get(row_name(name, settings))
        if row is None and settings.base is not None:
            yield f"datasets.{name}.base = {settings.base!r}: unknown dataset; {suggest(settings.base, DATASETS)}"
            continue
        if row is None:
            own = (
                "one of your own takes no settings"
                if is_own(name)
                else "a name of your own needs base: and one of these"
            )
            yield f"datasets.{name}: unknown dataset; {suggest(name, DATASETS)}; {own}"
            continue
        if settings.base is not None:
            yield from _base_problems(name, settings.base, row)
        for key, value in settings.model_dump(exclude_none=True, exclude={"base"}).items():
            if key not in row.settings:
                takes = f"takes {', '.join(row.settings)} only" if row.settings else "takes no settings"
                part = f"; workload.{key} uses a part of it" if key in ("train_samples", "test_samples") else ""
                yield f"datasets.{name}.{key} = {value!r}: {name} {takes}; remove this key{part}"
        if settings.source is not None and settings.mirrors is not None:
            yield f"datasets.{name}.mirrors: nothing is fetched where source is given; remove one of the two"


def _base_problems(name: str, base: str, row: Dataset) -> Iterator[str]:
    place = f"datasets.{name}"
    if name in DATASETS:
        yield f"{place}.base = {base!r}: {name} is a dataset itself; remove base, or choose another name"
    elif re.fullmatch(NAME, name) is None or name == "downloads":  # a folder of that name is in data_dir
        yield f"{place}: names are two or more of a-z, 0-9 and _, beginning with a letter, but for downloads"
    if not row.settings or row.published is not None:
        several = ", ".join(key for key, one in DATASETS.items() if one.settings and one.published is None)
        yield f"{place}.base = {base!r}: there is one {base} only; use its own name, or one of {several}"


def of_experiment(place: str, experiment: ExperimentConfig, datasets: dict[str, DatasetConfig]) -> Iterator[str]:
    yield from _workload_problems(f"{place}.workload", experiment, datasets)
    if experiment.backend == "nccl" and experiment.device == "cpu":
        yield f"{place}.backend = 'nccl': NCCL moves data between GPUs; use auto or gloo with device: cpu"
    unit, total, warmup = resolved.duration(experiment)
    if warmup >= total:
        yield f"{place}.warmup_{unit} = {warmup}: leaves nothing of {unit} = {total} to measure; raise {unit}"
    topologies = yield from _topologies(f"{place}.topologies", experiment.topologies)
    yield from _unknown(f"{place}.launchers", "launcher", experiment.launchers, LAUNCHERS)
    yield from _unknown(f"{place}.references", "set of published numbers", experiment.references, REFERENCES)
    used = set(topologies)
    for name, variant in experiment.strategies.items():
        used |= yield from _variant_problems(f"{place}.strategies.{name}", name, variant, experiment, topologies)
    yield from _explain_problems(place, experiment)
    yield from _batch_problems(place, experiment, sorted(used), datasets)


def _workload_problems(place: str, experiment: ExperimentConfig, datasets: dict[str, DatasetConfig]) -> Iterator[str]:
    workload = experiment.workload
    yield from _unknown(f"{place}.model", "model", [workload.model], MODELS, may_be_own=True)
    of_ones_own = {name: settings for name, settings in datasets.items() if settings.base is not None}
    yield from _unknown(f"{place}.dataset", "dataset", [workload.dataset], DATASETS | of_ones_own, may_be_own=True)
    if is_own(workload.model):
        for key in sorted(workload.model_options.keys() & set(GIVEN_TO_FACTORIES)):
            yield f"{place}.model_options.{key}: the dataset gives it to {workload.model}; remove this key"
    elif workload.model in MODELS:
        yield from _option_problems(MODELS[workload.model].options, workload.model_options, f"{place}.model_options")
    settings = datasets.get(workload.dataset, DatasetConfig())
    if row := DATASETS.get(row_name(workload.dataset, settings)):
        if "source" in row.settings and row.published is None and settings.source is None:
            which = "; docs/images.md says which files, and in what folders" if row.pack is not None else ""
            yield (
                f"{place}.dataset = {workload.dataset!r}: say where its files lie, in datasets.{workload.dataset}.source{which}"
            )
        counts = _counts(workload.dataset, datasets)
        for split, limit, count in zip(
            ("train", "test"), (workload.train_samples, workload.test_samples), counts, strict=True
        ):
            if limit is not None and count is not None and limit > count:
                yield f"{place}.{split}_samples = {limit}: {workload.dataset} has {count}; use at most that"
        if workload.model in MODELS:
            yield from _misfit(place, workload, row.samples(settings))
    if workload.optimizer.momentum is not None and workload.optimizer.name != "sgd":
        yield f"{place}.optimizer.momentum = {workload.optimizer.momentum}: only sgd has it; remove it or use name: sgd"
    schedule = workload.optimizer.schedule
    if schedule.kind == "cosine" and schedule.warmup_epochs >= (experiment.epochs or math.inf):
        yield (
            f"{place}.optimizer.schedule.warmup_epochs = {schedule.warmup_epochs:g}: leaves nothing of epochs = "
            f"{experiment.epochs} for the cosine; lower it, or raise epochs"
        )


def _counts(dataset: str, datasets: dict[str, DatasetConfig]) -> tuple[int | None, int | None]:
    """(train, test) samples, where they are known before the dataset is prepared."""
    settings = datasets.get(dataset, DatasetConfig())
    row = DATASETS.get(row_name(dataset, settings))
    return (row and row.counts(settings)) or (None, None)


def _misfit(place: str, workload: WorkloadConfig, samples: Samples) -> Iterator[str]:
    row = MODELS[workload.model]
    try:
        options = validated(row.options, workload.model_options, place)
    except ConfigError:
        return  # already said
    if refusal := row.refusal(options, samples):
        yield (
            f"{place}.dataset = {workload.dataset!r}: {samples}, but model {workload.model!r} {refusal}; choose another of "
            "the two"
        )


def _variant_problems(
    place: str, name: str, variant: StrategyConfig, experiment: ExperimentConfig, topologies: list[Topology]
) -> Generator[str, None, set[Topology]]:
    """Yields problems, returns the topologies that the variant runs on."""
    if name == PLACEBO:
        yield f"{place}: the name of the cell that placebo: true measures again; choose another"
    base = variant.base or name
    row = STRATEGIES.get(base)
    if row is None:
        key = f"{place}.base = {base!r}" if variant.base else place
        remedy = "" if variant.base else "; a name of your own needs base: and one of these"
        yield f"{key}: unknown strategy {base!r}; {suggest(base, STRATEGIES)}{remedy}"
        return set()
    known = {*StrategyConfig.model_fields, *row.options.model_fields}
    for key in sorted(variant.options.keys() - known):
        yield f"{place}: unknown key {key!r}: {suggest(key, sorted(known))}"
    if variant.options.keys() <= known:
        yield from _option_problems(row.options, variant.options, place)
    yield from _unknown(f"{place}.launchers", "launcher", variant.launchers or [], LAUNCHERS)
    own = topologies
    if variant.topologies is not None:
        own = yield from _topologies(f"{place}.topologies", variant.topologies)
    if own and not any(resolved.applies(row, topology) for topology in own):
        yield f"{place}: {base} applies to none of the topologies {', '.join(map(str, own))}; {resolved.applies_to(row)}"
    applied = {topology for topology in own if resolved.applies(row, topology)}
    yield from _precision_problems(place, base, row, variant, experiment)
    yield from _refusals(place, row, variant, experiment, applied)
    launchers = resolved.launchers(experiment, variant, row)
    if not launchers:
        yield f"{place}: {base} is started by {' or '.join(row.launchers or ())} only; add it to launchers"
    elif applied and not any(resolved.reaches(launcher, topology) for launcher in launchers for topology in applied):
        yield (
            f"{place}: {' and '.join(launchers)} starts ranks on one node only; add a topology such as "
            f"1x{min(applied).devices_per_node}, or another launcher"
        )
    parts = variant.options.get("accumulation_steps", 1)
    for topology in sorted(applied) if isinstance(parts, int) and parts > 1 else ():
        batch = resolved.batch_size_per_device(experiment, topology)
        if batch is not None and batch % parts:
            yield (
                f"{place}.accumulation_steps = {parts}: does not divide the {batch} samples per device of topology "
                f"{topology}; choose a divisor of {batch}"
            )
    return applied


def _precision_problems(
    place: str, base: str, row: Strategy, variant: StrategyConfig, experiment: ExperimentConfig
) -> Iterator[str]:
    precision, device = variant.precision or experiment.precision, experiment.device
    if device == "cpu" and precision in UNFIT_FOR_CPU:
        yield f"{place}.precision = {precision!r}: {UNFIT_FOR_CPU[precision]}"
    elif precision not in row.precisions:
        yield (
            f"{place}.precision = {precision!r}: {base} computes in {', '.join(row.precisions)} only; set the variant's "
            "own precision"
        )
    if resolved.own_or_shared(variant.compile, experiment.compile) and not row.compiles:
        yield f"{place}.compile = True: torch.compile does not apply to {base}; set compile: false in this variant"
    model = MODELS.get(experiment.workload.model)
    if (
        resolved.own_or_shared(variant.channels_last, experiment.channels_last)
        and model is not None
        and model.takes != "images"
    ):
        yield f"{place}.channels_last = True: model {experiment.workload.model!r} takes no images; remove it"


def _explain_problems(place: str, experiment: ExperimentConfig) -> Iterator[str]:
    """A row that can't be explained is left alone where others can; asked of it alone, it is refused."""
    known = {name: variant for name, variant in experiment.strategies.items() if (variant.base or name) in STRATEGIES}
    for name, variant in known.items():
        if variant.explain and not STRATEGIES[variant.base or name].explains:
            yield (
                f"{place}.strategies.{name}.explain = True: {variant.base or name} exchanges elsewhere than in DDP's "
                f"communication hook, which alone can be switched off; {EXPLAINED_ROWS}"
            )
    if experiment.explain and known and not any(resolved.is_explained(name, known[name], experiment) for name in known):
        yield f"{place}.explain = True: none of the strategies {', '.join(known)} can be; add one of these: {EXPLAINED_ROWS}"


def _refusals(
    place: str, row: Strategy, variant: StrategyConfig, experiment: ExperimentConfig, topologies: set[Topology]
) -> Iterator[str]:
    """What the row itself refuses of a well-formed variant that runs on these topologies."""
    try:
        options = validated(row.options, variant.options, place)
    except ConfigError:
        return  # already said
    asked = Asked(
        device=experiment.device,
        precision=variant.precision or experiment.precision,
        optimizer=experiment.workload.optimizer.name,
        compile=resolved.own_or_shared(variant.compile, experiment.compile),
        channels_last=resolved.own_or_shared(variant.channels_last, experiment.channels_last),
        explain=resolved.own_or_shared(variant.explain, experiment.explain),
        fewest_devices=min((topology.devices for topology in topologies), default=row.min_devices),
    )
    if refusal := row.refuses(options, asked):
        yield f"{place}: {refusal}"


def _batch_problems(
    place: str, experiment: ExperimentConfig, topologies: list[Topology], datasets: dict[str, DatasetConfig]
) -> Iterator[str]:
    workload = experiment.workload
    if experiment.batch.per_device == LARGEST and experiment.device not in SEARCHES_ON:
        yield (
            f"{place}.batch.per_device = 'largest': with device: {experiment.device} ranks share the machine's memory, "
            "and the kernel ends processes where CUDA refuses; give a number, or device: cuda"
        )
    available = workload.train_samples
    if available is None:
        available, _ = _counts(workload.dataset, datasets)
    for topology in topologies:
        n = topology.devices
        if experiment.batch.global_ is not None and experiment.batch.global_ % n:
            yield (
                f"{place}.batch.global = {experiment.batch.global_}: does not divide by the {n} devices of topology "
                f"{topology}; choose a multiple of {n}"
            )
            continue
        batch = resolved.batch_size_per_device(experiment, topology) or 1
        if available is not None and batch * n > available:
            yield (
                f"{place}.batch: {n} devices x {batch} samples need {batch * n} training samples for one step on "
                f"{topology}, {workload.dataset} has {available} here; use a smaller batch or fewer devices"
            )


def _unknown(place: str, what: str, names: list[str], table: dict[str, Any], may_be_own: bool = False) -> Iterator[str]:
    for name in names:
        if name in table or (may_be_own and is_well_formed(name)):
            continue
        own = "; or package.module:factory of your own" if may_be_own else ""
        yield f"{place}: unknown {what} {name!r}; {suggest(name, table)}{own}"


def _option_problems(model: type[Strict], options: dict[str, Any], place: str) -> Iterator[str]:
    try:
        validated(model, options, place)
    except ConfigError as error:
        yield from str(error).splitlines()


def _topologies(place: str, texts: list[str]) -> Generator[str, None, list[Topology]]:
    """Yields problems, returns the topologies that are well written."""
    good = []
    for text in texts:
        try:
            topology = Topology.parse(text)
        except ValueError as error:
            yield f"{place}: {error}"
            continue
        good.append(topology)
    return good
