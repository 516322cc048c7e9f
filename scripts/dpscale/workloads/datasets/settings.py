"""A dataset's part of the config: apart from the rest, so that a new key elsewhere prepares no dataset again."""

from __future__ import annotations

from pydantic import Field

from dpscale.typed import Count, Strict


class DatasetConfig(Strict):
    """Where a dataset's files lie. Prepared once into data_dir, then shared by all experiments."""

    source: str | None = Field(None, description="folder of the dataset's files; not for digits and synthetic")
    train_samples: Count | None = Field(None, description="synthetic only: how many training samples to make")
    test_samples: Count | None = Field(None, description="synthetic only: how many test samples to make")
