"""What the keys of an experiment and of a variant come to together."""

from __future__ import annotations

from dpscale.config import ExperimentConfig, StrategyConfig
from dpscale.launched import Topology
from dpscale.launching.launchers import LAUNCHERS
from dpscale.strategies import STRATEGIES
from dpscale.strategies.base import Strategy
from dpscale.trial import LARGEST

DEFAULT_WARMUP_EPOCHS = 1
DEFAULT_WARMUP_STEPS = 10
DEFAULT_HEADROOM_PERCENT = 5.0


def is_explained(name: str, variant: StrategyConfig, experiment: ExperimentConfig) -> bool:
    return STRATEGIES[variant.base or name].explains and own_or_shared(variant.explain, experiment.explain)


def own_or_shared(own: bool | None, experiments: bool) -> bool:
    """A variant's own setting, or its experiment's."""
    return experiments if own is None else own


def applies(row: Strategy, topology: Topology) -> bool:
    if row.single_process and topology.nodes > 1:
        return False
    return row.min_devices <= topology.devices <= (row.max_devices or topology.devices)


def applies_to(row: Strategy) -> str:
    if row.max_devices is not None:
        return f"it needs {row.min_devices} to {row.max_devices} devices" if row.max_devices > 1 else "it needs 1x1"
    return f"it needs at least {row.min_devices} devices" + (" on one node" if row.single_process else "")


def duration(experiment: ExperimentConfig) -> tuple[str, int, int]:
    """(unit, total, warm-up)."""
    if experiment.epochs is not None:
        default = DEFAULT_WARMUP_EPOCHS
        return "epochs", experiment.epochs, default if experiment.warmup_epochs is None else experiment.warmup_epochs
    default = DEFAULT_WARMUP_STEPS
    return "steps", experiment.steps or 0, default if experiment.warmup_steps is None else experiment.warmup_steps


def batch_size_per_device(experiment: ExperimentConfig, topology: Topology) -> int | None:
    """None: a search is to find it."""
    if experiment.batch.per_device == LARGEST:
        return None
    if isinstance(experiment.batch.per_device, int):
        return experiment.batch.per_device
    assert experiment.batch.global_ is not None  # the config says exactly one
    return experiment.batch.global_ // topology.devices


def scaling(experiment: ExperimentConfig) -> str:
    if experiment.batch.per_device is None:
        return "strong"
    return LARGEST if experiment.batch.per_device == LARGEST else "weak"


def headroom_percent(experiment: ExperimentConfig) -> float | None:
    if experiment.batch.per_device != LARGEST:
        return None
    asked_for = experiment.batch.headroom_percent
    return DEFAULT_HEADROOM_PERCENT if asked_for is None else asked_for


def backend(experiment: ExperimentConfig) -> str:
    if experiment.backend != "auto":
        return experiment.backend
    return "nccl" if experiment.device == "cuda" else "gloo"


def launchers(experiment: ExperimentConfig, variant: StrategyConfig, row: Strategy) -> list[str]:
    launchers = variant.launchers or experiment.launchers
    if row.launchers is not None:
        launchers = [launcher for launcher in launchers if launcher in row.launchers]
    # one process is the same process, whoever starts it
    return launchers[:1] if row.single_process else launchers


def reaches(launcher: str, topology: Topology) -> bool:
    return topology.nodes == 1 or launcher not in LAUNCHERS or not LAUNCHERS[launcher].one_node
