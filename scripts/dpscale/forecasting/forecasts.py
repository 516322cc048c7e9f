"""Config -> what is predicted from what: from the config alone, as the plan of trials is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dpscale.collectives.run import Run
from dpscale.config import Config, ExperimentConfig
from dpscale.errors import ConfigError, suggest
from dpscale.launched import Topology
from dpscale.trial import LARGEST, Trial


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """One strategy under one launcher."""

    strategy: str
    same: list[str]  # it, and variants that are trained alike: what is measured of them is of it
    launcher: str
    trials: list[Trial]  # that it is calibrated from
    sweep: list[Trial]  # and more on one device, of other batches
    exchanges: list[Run]  # of collectives, beside the buckets of the trials
    targets: list[Topology]  # what is predicted


def plan_forecasts(
    config: Config, plans: dict[str, list[Trial]], collectives: dict[str, list[Run]], source: str = "config.yaml"
) -> dict[str, list[Forecast]]:
    """Experiment -> its forecasts; none where nothing is to be predicted.

    Raises:
        ConfigError: one line for each contradiction, with the key's path, its value and the remedy.
    """
    problems = [
        problem
        for name, experiment in config.experiments.items()
        if experiment.prediction.calibrate_up_to is not None
        for problem in _problems(f"experiments.{name}", experiment, plans[name], collectives[name])
    ]
    if problems:
        raise ConfigError(f"{source}: {problem}" for problem in problems)
    return {
        name: list(_forecasts(experiment, plans[name], collectives[name]))
        for name, experiment in config.experiments.items()
    }


def _problems(place: str, experiment: ExperimentConfig, trials: list[Trial], runs: list[Run]) -> Iterator[str]:
    wanted, up_to = experiment.prediction, experiment.prediction.calibrate_up_to
    place_of = f"{place}.prediction"
    if experiment.batch.per_device == LARGEST:
        yield f"{place_of}.calibrate_up_to = {up_to}: each cell has a batch of its own; give batch.per_device a number"
    for name in wanted.strategies or []:
        if name not in experiment.strategies:
            yield f"{place_of}.strategies: unknown strategy {name!r}; {suggest(name, experiment.strategies)}"
    for text in wanted.topologies or []:
        try:
            Topology.parse(text)
        except ValueError as error:
            yield f"{place_of}.topologies: {error}"
    names = [f"{name}_batch_{size}" for name in _strategies(experiment, trials) for size in wanted.batch_sweep]
    for name in sorted(set(names) & experiment.strategies.keys()):
        yield f"{place_of}.batch_sweep: trials of another batch are named {name}, which is a strategy here; rename that"
    chosen = [trial for trial in _small(experiment, trials) if trial.strategy in _strategies(experiment, trials)]
    if not any(trial.explain for trial in trials):
        yield f"{place_of}.calibrate_up_to = {up_to}: nothing says when DDP's buckets are ready; set explain: true"
    elif not any(trial.explain for trial in chosen):
        yield f"{place_of}.strategies: none of {', '.join(wanted.strategies or [])} is explained; name one that is"
    elif not any(trial.devices == 1 for trial in chosen):
        yield f"{place_of}.calibrate_up_to = {up_to}: needs a trial on one device; add 1x1 to topologies"
    if any(trial.options.get("comm_hook") == "powersgd" for trial in chosen):
        yield f"{place_of}.strategies: how many bytes PowerSGD exchanges can't be said; name strategies without it"
    yield from _too_few(place_of, experiment, chosen, [run for run in runs if _fits(experiment, run)])
    if wanted.exchanges == "collectives" and not any(_fits(experiment, run) for run in runs):
        yield (
            f"{place_of}.exchanges = 'collectives': no all_reduce is timed on {up_to} devices or fewer; add "
            "collectives: {operations: [all_reduce]}, or set exchanges: buckets"
        )


def _too_few(place: str, experiment: ExperimentConfig, chosen: list[Trial], runs: list[Run]) -> Iterator[str]:
    """What a calibration would refuse once all is measured, as far as the plan tells."""
    wanted, up_to = experiment.prediction, experiment.prediction.calibrate_up_to
    batches = {trial.batch_size_per_device for trial in chosen if trial.devices == 1} | {*wanted.batch_sweep}
    if len(batches) == 1 and (size := batches.pop()) is not None:
        yield (
            f"{place}.batch_sweep = []: one batch size on one device ({size}) can't tell what a step costs from what a sample "
            f"does; give more, such as [{max(1, size // 2)}, {2 * size}]"
        )
    explained = [trial.devices for trial in chosen if trial.explain] if wanted.exchanges != "collectives" else []
    exchanging = {devices for devices in explained if devices > 1}
    if wanted.exchanges != "buckets":
        exchanging |= {run.devices for run in runs}
    if len(exchanging) < 2:
        on = f"on {exchanging.pop()} devices only" if exchanging else "nowhere"
        yield (
            f"{place}.calibrate_up_to = {up_to}: up to there gradients are exchanged {on}, and nothing would say how exchanges "
            "grow with N; have trials or collectives of two numbers of devices, such as 1x2 and 1x4, and calibrate up to the larger"
        )


def _forecasts(experiment: ExperimentConfig, trials: list[Trial], runs: list[Run]) -> Iterator[Forecast]:
    wanted = experiment.prediction
    if wanted.calibrate_up_to is None:
        return
    small = _small(experiment, trials)
    for strategy in _strategies(experiment, trials):
        same = _trained_alike(strategy, trials)
        for launcher in dict.fromkeys(trial.launcher for trial in trials if trial.strategy == strategy):
            mine = [trial for trial in small if (trial.strategy, trial.launcher) == (strategy, launcher)]
            planned = {trial.topology for trial in trials if trial.strategy in same and trial.launcher == launcher}
            targets = {Topology.parse(text) for text in wanted.topologies or []} or planned
            yield Forecast(
                strategy=strategy,
                same=same,
                launcher=launcher,
                trials=mine,
                sweep=list(_sweep(mine, wanted.batch_sweep)),
                exchanges=_exchanges(experiment, runs, launcher),
                targets=sorted(targets | {trial.topology for trial in mine}),
            )


def _small(experiment: ExperimentConfig, trials: list[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.devices <= (experiment.prediction.calibrate_up_to or 0)]


def _strategies(experiment: ExperimentConfig, trials: list[Trial]) -> list[str]:
    """Those that are asked for, or all that can be explained."""
    explained = dict.fromkeys(
        trial.strategy for trial in trials if trial.explain and trial.strategy in experiment.strategies
    )
    return experiment.prediction.strategies or list(explained)


def _trained_alike(strategy: str, trials: list[Trial]) -> list[str]:
    """Variants that differ in nothing but topologies and explain, as it may take too long on many devices."""

    def training(trial: Trial) -> tuple[object, ...]:
        return trial.base, trial.options, trial.precision, trial.compile, trial.channels_last

    of_it = next(training(trial) for trial in trials if trial.strategy == strategy)
    return list(dict.fromkeys(trial.strategy for trial in trials if training(trial) == of_it))


def _sweep(trials: Sequence[Trial], batch_sizes: Sequence[int]) -> Iterator[Trial]:
    """As the trials on one device are, with another batch; what is asked of those beside their times is left out.

    They are of no cell of the plan: no table and no figure compares them.
    """
    for trial in trials:
        if trial.devices == 1:
            for batch_size in batch_sizes:
                if batch_size != trial.batch_size_per_device:
                    yield replace(
                        trial,
                        strategy=f"{trial.strategy}_batch_{batch_size}",
                        batch_size_per_device=batch_size,
                        evaluate=False,
                        explain=False,
                    )


def _exchanges(experiment: ExperimentConfig, runs: list[Run], launcher: str) -> list[Run]:
    """Under the same launcher, where there are any."""
    if experiment.prediction.exchanges == "buckets":
        return []
    fitting = [run for run in runs if _fits(experiment, run)]
    return [run for run in fitting if run.launcher == launcher] or fitting


def _fits(experiment: ExperimentConfig, run: Run) -> bool:
    return "all_reduce" in run.operations and run.devices <= (experiment.prediction.calibrate_up_to or 0)


def needs_forecast(experiment: ExperimentConfig, trial: Trial) -> bool:
    """Whether a trial is on more devices than are calibrated from: its prediction is written before it runs."""
    up_to = experiment.prediction.calibrate_up_to
    return up_to is not None and trial.devices > up_to
