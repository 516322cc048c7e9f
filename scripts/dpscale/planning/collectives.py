"""Config -> the runs that time collectives, from the config alone as the plan of trials is."""

from __future__ import annotations

from collections.abc import Iterator

from dpscale.collectives.run import Run
from dpscale.config import Config, ExperimentConfig
from dpscale.errors import ConfigError, suggest
from dpscale.launched import Topology
from dpscale.launching.launchers import LAUNCHERS
from dpscale.planning import resolved

EMULATED = ("all_reduce",)  # what an emulated network knows the time of


def plan_collectives(config: Config, source: str = "config.yaml") -> dict[str, list[Run]]:
    """Experiment -> its runs; none where it times no collective.

    Raises:
        ConfigError: one line for each contradiction, with the key's path, its value and the remedy.
    """
    problems = [
        problem
        for name, experiment in config.experiments.items()
        for problem in _problems(f"experiments.{name}.collectives", experiment)
    ]
    if problems:
        raise ConfigError(f"{source}: {problem}" for problem in problems)
    return {name: list(_runs(name, experiment)) for name, experiment in config.experiments.items()}


def _problems(place: str, experiment: ExperimentConfig) -> Iterator[str]:
    settings = experiment.collectives
    for launcher in settings.launchers or []:
        if launcher not in LAUNCHERS:
            yield f"{place}.launchers: unknown launcher {launcher!r}; {suggest(launcher, LAUNCHERS)}"
    for text in settings.topologies or []:
        try:
            topology = Topology.parse(text)
        except ValueError as error:
            yield f"{place}.topologies: {error}"
            return
        if topology.devices == 1:
            yield f"{place}.topologies: on {text} there is nobody to exchange anything with; use 2 devices or more"
    if settings.operations and not list(_places(experiment)):
        yield (
            f"{place}.operations: no launcher here reaches a topology of 2 devices or more, and collectives need that; "
            "give collectives.topologies, such as [1x2]"
        )
    if settings.network is not None:
        yield from _network_problems(place, experiment)


def _network_problems(place: str, experiment: ExperimentConfig) -> Iterator[str]:
    network = f"{place}.network = {experiment.collectives.network!r}"
    if others := [name for name in experiment.collectives.operations if name not in EMULATED]:
        yield f"{network}: {', '.join(others)} can't be emulated; set operations: [{', '.join(EMULATED)}]"
    if experiment.device != "cpu":
        yield f"{network}: links are emulated between processes that exchange on the CPU; use device: cpu"


def _places(experiment: ExperimentConfig) -> Iterator[tuple[str, Topology]]:
    settings = experiment.collectives
    for launcher in settings.launchers or experiment.launchers:
        for topology in sorted(map(Topology.parse, settings.topologies or experiment.topologies)):
            if topology.devices > 1 and launcher in LAUNCHERS and resolved.reaches(launcher, topology):
                yield launcher, topology


def _runs(name: str, experiment: ExperimentConfig) -> Iterator[Run]:
    settings = experiment.collectives
    for launcher, topology in _places(experiment) if settings.operations else ():
        yield Run(
            experiment=name,
            launcher=launcher,
            nodes=topology.nodes,
            devices_per_node=topology.devices_per_node,
            world_size=topology.devices,
            device=experiment.device,
            backend=resolved.backend(experiment),
            threads_per_rank=experiment.threads_per_rank,
            operations=list(settings.operations),
            dtypes=list(settings.dtypes),
            sizes=settings.sizes_bytes,
            blocks=settings.blocks,
            seconds_per_size=settings.seconds_per_size,
            network=settings.network,
            timeout_s=experiment.timeout_s,
            collective_timeout_s=experiment.collective_timeout_s,
        )
