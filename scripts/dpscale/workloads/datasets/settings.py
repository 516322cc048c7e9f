"""A dataset's part of the config: apart from the rest, so that a new key elsewhere prepares no dataset again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from dpscale.typed import Count, Strict

Shape = Annotated[list[Count], Field(min_length=3, max_length=3)]
Classes = Annotated[int, Field(ge=2)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://")]


class DatasetConfig(Strict):
    """What a dataset is made from, or how. Prepared once into data_dir, then shared by all experiments."""

    source: str | None = Field(
        None, description="folder or archive (tar, zip) that already holds the dataset's files; null = they are fetched"
    )
    mirrors: Annotated[list[Url], Field(min_length=1)] | None = Field(
        None, description="URLs of folders to fetch the files from, the first that has them; null = the public places"
    )
    train_samples: Count | None = Field(
        None, description="synthetic and synthetic_tokens: training samples to make; null = 10,000"
    )
    test_samples: Count | None = Field(
        None, description="synthetic and synthetic_tokens: test samples to make; null = 2,000"
    )
    sample_shape: Shape | None = Field(
        None, description="synthetic: [channels, height, width] of its images; null = [1, 28, 28]"
    )
    classes: Classes | None = Field(None, description="synthetic: its classes; null = 10")
    vocabulary: Classes | None = Field(None, description="synthetic_tokens: different tokens; null = 256")
    context: Count | None = Field(None, description="synthetic_tokens: tokens of a sample; null = 64")
