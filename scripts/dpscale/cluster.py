"""The cluster's part of the config: apart from the rest, so that a new key elsewhere measures no trial again."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from dpscale.typed import Count, Strict, no_password


class ClusterConfig(Strict):
    """How trials use the nodes of a cluster. What is the site's own (partition, account) stands in slurm/config.yaml."""

    gres: str = Field("gpu", pattern=r"^\w+(:[\w.-]+)?$", description="SLURM's name of a GPU, e.g. gpu:a100")
    cores_per_rank: Count | None = Field(None, description="CPUs asked for per rank; null = threads + loader workers")
    exclusive: bool = Field(True, description="no other job on a trial's nodes; records of shared ones say so")
    interface: str | None = Field(None, description="network interface between nodes, e.g. ib0; null = by the route")
    prelude: str = Field("", description="a shell line before every rule's commands, e.g. module load cuda/13.0")
    container: Annotated[str, AfterValidator(no_password)] | None = Field(
        None,
        min_length=1,
        description="image that ranks run in, through apptainer: a .sif or docker://...; null = none",
    )
    staging_dir: str | None = Field(
        None, description="node-local folder that a trial's dataset is copied to first; null = read from data_dir"
    )
