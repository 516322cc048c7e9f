"""The config's prediction: from which trials, of which larger ones."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from dpscale.typed import Count, Listed, Strict


def _each_once(values: list[int]) -> list[int]:
    if len(set(values)) < len(values):
        raise ValueError("give each batch size once")
    return values


class PredictionConfig(Strict):
    """What larger topologies will take, predicted from trials on few devices before the larger ones run."""

    calibrate_up_to: Count | None = Field(
        None, description="trials on at most so many devices are calibrated from, and no others; null = no prediction"
    )
    strategies: Listed | None = Field(
        None, description="which of the experiment's; null = all that explain: true is for"
    )
    batch_sweep: Annotated[list[Count], AfterValidator(_each_once)] = Field(
        [], description="batch sizes of more trials on one device, which tell a step's cost from a sample's"
    )
    topologies: Listed | None = Field(
        None, description="what is predicted, whether it is measured or not; null = the experiment's topologies"
    )
    exchanges: Literal["collectives", "buckets"] = Field(
        "collectives",
        description="whose times the network is calibrated from: all_reduce alone over several sizes, beside DDP's buckets as "
        "explain: true stamps them, or buckets only",
    )

    @model_validator(mode="after")
    def _asked_for(self) -> PredictionConfig:
        if self.calibrate_up_to is None and (self.strategies or self.batch_sweep or self.topologies):
            raise ValueError(
                "nothing is predicted without calibrate_up_to; give the most devices to calibrate from, such as 4"
            )
        return self
