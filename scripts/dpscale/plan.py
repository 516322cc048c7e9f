"""Config -> the list of trials, and the contradictions between its keys.

From the config alone, so that the plan is the same on a login node, a compute node and a laptop. What depends on the
machine (GPUs, packages, a compiler) is probed by the trial where it runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dpscale.code import own_sources
from dpscale.config import Config, ExperimentConfig, StrategyConfig, WorkloadConfig
from dpscale.errors import ConfigError, UserError, suggest
from dpscale.launched import Topology
from dpscale.launching.launchers import LAUNCHERS
from dpscale.own import is_own, is_well_formed
from dpscale.references import REFERENCES
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import Asked, Strategy
from dpscale.trial import LARGEST, PLACEBO, Trial
from dpscale.typed import NAME, Strict, validated
from dpscale.workloads.datasets import DATASETS, row_name
from dpscale.workloads.datasets.base import Dataset
from dpscale.workloads.datasets.settings import DatasetConfig
from dpscale.workloads.models import MODELS
from dpscale.workloads.models.own import GIVEN as GIVEN_TO_FACTORIES
from dpscale.workloads.samples import Samples

DEFAULT_WARMUP_EPOCHS = 1
DEFAULT_WARMUP_STEPS = 10
DEFAULT_HEADROOM_PERCENT = 5.0
SEARCHES_ON = {"cuda"}  # devices with a memory of their own, which refuses what does not fit
EXPLAINED_ROWS = ", ".join(name for name, row in STRATEGIES.items() if row.explains)
UNFIT_FOR_CPU = {
    "fp16": "CPUs compute fp16 some 50 times slower than fp32; use bf16, or device: cuda",
    "tf32": "a format of CUDA's tensor cores; use fp32, or device: cuda",
}


def plan_trials(config: Config, source: str = "config.yaml") -> dict[str, list[Trial]]:
    """Experiment -> its trials, repeat by repeat; order.py says in which order they run.

    Raises:
        ConfigError: one line for each contradiction, with the key's path, its value and the remedy.
    """
    problems = list(_dataset_problems(config.datasets))
    plans = {}
    for name, experiment in config.experiments.items():
        found = list(_problems(f"experiments.{name}", experiment, config.datasets))
        problems += found
        if not found:
            plans[name] = list(_trials(name, experiment, config.more_repeats.get(name, {})))
    if problems:
        raise ConfigError(f"{source}: {problem}" for problem in problems)
    return plans


def upper_bound_device_hours(trials: list[Trial]) -> float:
    """Devices x time limit, summed over trials and searches for the largest batch: what one attempt at each can take."""
    searches = {trial.cell: trial for trial in trials if trial.scaling == LARGEST}.values()
    return (
        sum(trial.devices * trial.timeout_s for trial in trials)
        + sum(trial.devices * trial.search_timeout_s for trial in searches)
    ) / 3600


def find_own_code(config: Config, source: str = "config.yaml") -> None:
    """Look for the source of models and datasets of the user's own; unlike the plan, this depends on the machine.

    Raises:
        ConfigError: one line for each that is not there.
    """
    problems = []
    for experiment, settings in config.experiments.items():
        for key, name in (("model", settings.workload.model), ("dataset", settings.workload.dataset)):
            try:
                if is_own(name):
                    own_sources(name)
            except UserError as error:
                problems.append(f"{source}: experiments.{experiment}.workload.{key} = {name!r}: {error}")
    if problems:
        raise ConfigError(problems)


def _dataset_problems(datasets: dict[str, DatasetConfig]) -> Iterator[str]:
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


def _problems(place: str, experiment: ExperimentConfig, datasets: dict[str, DatasetConfig]) -> Iterator[str]:
    yield from _workload_problems(f"{place}.workload", experiment, datasets)
    if experiment.backend == "nccl" and experiment.device == "cpu":
        yield f"{place}.backend = 'nccl': NCCL moves data between GPUs; use auto or gloo with device: cpu"
    unit, total, warmup = _duration(experiment)
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
    if own and not any(_applies(row, topology) for topology in own):
        yield f"{place}: {base} applies to none of the topologies {', '.join(map(str, own))}; {_applies_to(row)}"
    applied = {topology for topology in own if _applies(row, topology)}
    yield from _precision_problems(place, base, row, variant, experiment)
    yield from _refusals(place, row, variant, experiment, applied)
    launchers = _launchers(experiment, variant, row)
    if not launchers:
        yield f"{place}: {base} is started by {' or '.join(row.launchers or ())} only; add it to launchers"
    elif applied and not any(_reaches(launcher, topology) for launcher in launchers for topology in applied):
        yield (
            f"{place}: {' and '.join(launchers)} starts ranks on one node only; add a topology such as "
            f"1x{min(applied).devices_per_node}, or another launcher"
        )
    parts = variant.options.get("accumulation_steps", 1)
    for topology in sorted(applied) if isinstance(parts, int) and parts > 1 else ():
        batch = _batch_size_per_device(experiment, topology)
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
    if _of(variant.compile, experiment.compile) and not row.compiles:
        yield f"{place}.compile = True: torch.compile does not apply to {base}; set compile: false in this variant"
    model = MODELS.get(experiment.workload.model)
    if _of(variant.channels_last, experiment.channels_last) and model is not None and model.takes != "images":
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
    if experiment.explain and known and not any(_explained(name, known[name], experiment) for name in known):
        yield f"{place}.explain = True: none of the strategies {', '.join(known)} can be; add one of these: {EXPLAINED_ROWS}"


def _explained(name: str, variant: StrategyConfig, experiment: ExperimentConfig) -> bool:
    return STRATEGIES[variant.base or name].explains and _of(variant.explain, experiment.explain)


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
        compile=_of(variant.compile, experiment.compile),
        channels_last=_of(variant.channels_last, experiment.channels_last),
        explain=_of(variant.explain, experiment.explain),
        fewest_devices=min((topology.devices for topology in topologies), default=row.min_devices),
    )
    if refusal := row.refuses(options, asked):
        yield f"{place}: {refusal}"


def _of(own: bool | None, experiments: bool) -> bool:
    """A variant's own setting, or its experiment's."""
    return experiments if own is None else own


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
        batch = _batch_size_per_device(experiment, topology) or 1
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


def _applies(row: Strategy, topology: Topology) -> bool:
    if row.single_process and topology.nodes > 1:
        return False
    return row.min_devices <= topology.devices <= (row.max_devices or topology.devices)


def _applies_to(row: Strategy) -> str:
    if row.max_devices is not None:
        return f"it needs {row.min_devices} to {row.max_devices} devices" if row.max_devices > 1 else "it needs 1x1"
    return f"it needs at least {row.min_devices} devices" + (" on one node" if row.single_process else "")


def _duration(experiment: ExperimentConfig) -> tuple[str, int, int]:
    """(unit, total, warm-up)."""
    if experiment.epochs is not None:
        default = DEFAULT_WARMUP_EPOCHS
        return "epochs", experiment.epochs, default if experiment.warmup_epochs is None else experiment.warmup_epochs
    default = DEFAULT_WARMUP_STEPS
    return "steps", experiment.steps or 0, default if experiment.warmup_steps is None else experiment.warmup_steps


def _batch_size_per_device(experiment: ExperimentConfig, topology: Topology) -> int | None:
    """None: a search is to find it."""
    if experiment.batch.per_device == LARGEST:
        return None
    if isinstance(experiment.batch.per_device, int):
        return experiment.batch.per_device
    assert experiment.batch.global_ is not None  # the config says exactly one
    return experiment.batch.global_ // topology.devices


def _scaling(experiment: ExperimentConfig) -> str:
    if experiment.batch.per_device is None:
        return "strong"
    return LARGEST if experiment.batch.per_device == LARGEST else "weak"


def _headroom_percent(experiment: ExperimentConfig) -> float | None:
    if experiment.batch.per_device != LARGEST:
        return None
    asked_for = experiment.batch.headroom_percent
    return DEFAULT_HEADROOM_PERCENT if asked_for is None else asked_for


def _launchers(experiment: ExperimentConfig, variant: StrategyConfig, row: Strategy) -> list[str]:
    launchers = variant.launchers or experiment.launchers
    if row.launchers is not None:
        launchers = [launcher for launcher in launchers if launcher in row.launchers]
    # one process is the same process, whoever starts it
    return launchers[:1] if row.single_process else launchers


def _reaches(launcher: str, topology: Topology) -> bool:
    return topology.nodes == 1 or launcher not in LAUNCHERS or not LAUNCHERS[launcher].one_node


def _trials(name: str, experiment: ExperimentConfig, more_repeats: Mapping[str, int]) -> Iterator[Trial]:
    """Repeat by repeat, and in each the cells in the config's order."""
    cells = list(_cells(name, experiment))
    if experiment.placebo:
        cells.append(replace(max(cells, key=lambda cell: cell.devices), strategy=PLACEBO))  # the first of the largest
    repeats = [max(experiment.repeats, more_repeats.get(cell.cell, 0)) for cell in cells]
    for repeat in range(max(repeats)):
        for cell, count in zip(cells, repeats, strict=True):
            if repeat < count:
                yield replace(cell, repeat=repeat, seed=experiment.seed + repeat)


def _cells(name: str, experiment: ExperimentConfig) -> Iterator[Trial]:
    """The first trial of each cell."""
    unit, total, warmup = _duration(experiment)
    workload = experiment.workload
    default_backend = "nccl" if experiment.device == "cuda" else "gloo"
    for strategy, variant in experiment.strategies.items():
        base = variant.base or strategy
        row = STRATEGIES[base]
        topologies = [Topology.parse(text) for text in variant.topologies or experiment.topologies]
        for topology in sorted(topology for topology in topologies if _applies(row, topology)):
            for launcher in _launchers(experiment, variant, row):
                if not _reaches(launcher, topology):
                    continue
                yield Trial(
                    experiment=name,
                    strategy=strategy,
                    base=base,
                    options=variant.options,
                    launcher=launcher,
                    nodes=topology.nodes,
                    devices_per_node=topology.devices_per_node,
                    world_size=1 if row.single_process else topology.devices,
                    repeat=0,
                    device=experiment.device,
                    backend=default_backend if experiment.backend == "auto" else experiment.backend,
                    precision=variant.precision or experiment.precision,
                    compile=_of(variant.compile, experiment.compile),
                    channels_last=_of(variant.channels_last, experiment.channels_last),
                    model=workload.model,
                    model_options=dict(workload.model_options),
                    dataset=workload.dataset,
                    train_samples=workload.train_samples,
                    test_samples=workload.test_samples,
                    optimizer=workload.optimizer.model_dump(),
                    scaling=_scaling(experiment),
                    batch_size_per_device=_batch_size_per_device(experiment, topology),
                    headroom_percent=_headroom_percent(experiment),
                    epochs=total if unit == "epochs" else None,
                    warmup_epochs=warmup if unit == "epochs" else None,
                    steps=total if unit == "steps" else None,
                    warmup_steps=warmup if unit == "steps" else None,
                    evaluate=experiment.evaluate,
                    explain=_explained(strategy, variant, experiment),
                    threads_per_rank=experiment.threads_per_rank,
                    loader_workers=experiment.loader_workers,
                    monitor_interval_s=experiment.monitor_interval_s,
                    seed=experiment.seed,
                    timeout_s=experiment.timeout_s,
                    collective_timeout_s=experiment.collective_timeout_s,
                    checkpoint_interval_s=experiment.checkpoint_interval_s,
                )
