"""Config -> the list of trials.

From the config alone, so that the plan is the same on a login node, a compute node and a laptop. What depends on the
machine (GPUs, packages, a compiler) is probed by the trial where it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dpscale.code import own_sources
from dpscale.config import Config, ExperimentConfig
from dpscale.errors import ConfigError, UserError
from dpscale.launched import Topology
from dpscale.own import is_own
from dpscale.planning import contradictions, resolved
from dpscale.strategies import STRATEGIES
from dpscale.trial import LARGEST, PLACEBO, Trial


def plan_trials(config: Config, source: str = "config.yaml") -> dict[str, list[Trial]]:
    """Experiment -> its trials, repeat by repeat; order.py says in which order they run.

    Raises:
        ConfigError: one line for each contradiction, with the key's path, its value and the remedy.
    """
    problems = list(contradictions.of_datasets(config.datasets))
    plans = {}
    for name, experiment in config.experiments.items():
        found = list(contradictions.of_experiment(f"experiments.{name}", experiment, config.datasets))
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
    unit, total, warmup = resolved.duration(experiment)
    workload = experiment.workload
    for strategy, variant in experiment.strategies.items():
        base = variant.base or strategy
        row = STRATEGIES[base]
        topologies = [Topology.parse(text) for text in variant.topologies or experiment.topologies]
        for topology in sorted(topology for topology in topologies if resolved.applies(row, topology)):
            for launcher in resolved.launchers(experiment, variant, row):
                if not resolved.reaches(launcher, topology):
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
                    backend=resolved.backend(experiment),
                    precision=variant.precision or experiment.precision,
                    compile=resolved.own_or_shared(variant.compile, experiment.compile),
                    channels_last=resolved.own_or_shared(variant.channels_last, experiment.channels_last),
                    model=workload.model,
                    model_options=dict(workload.model_options),
                    dataset=workload.dataset,
                    train_samples=workload.train_samples,
                    test_samples=workload.test_samples,
                    optimizer=workload.optimizer.model_dump(),
                    scaling=resolved.scaling(experiment),
                    batch_size_per_device=resolved.batch_size_per_device(experiment, topology),
                    headroom_percent=resolved.headroom_percent(experiment),
                    epochs=total if unit == "epochs" else None,
                    warmup_epochs=warmup if unit == "epochs" else None,
                    steps=total if unit == "steps" else None,
                    warmup_steps=warmup if unit == "steps" else None,
                    evaluate=experiment.evaluate,
                    explain=resolved.is_explained(strategy, variant, experiment),
                    threads_per_rank=experiment.threads_per_rank,
                    loader_workers=experiment.loader_workers,
                    monitor_interval_s=experiment.monitor_interval_s,
                    seed=experiment.seed,
                    timeout_s=experiment.timeout_s,
                    collective_timeout_s=experiment.collective_timeout_s,
                    checkpoint_interval_s=experiment.checkpoint_interval_s,
                )
