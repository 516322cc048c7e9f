"""A dataset's part of the config: apart from the rest, so that a new key elsewhere prepares no dataset again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dpscale.typed import Count, Strict

Shape = Annotated[list[Count], Field(min_length=3, max_length=3)]
Classes = Annotated[int, Field(ge=2)]


class DatasetConfig(Strict):
    """What a dataset is made from, or how. Prepared once into data_dir, then shared by all experiments."""

    source: str | None = Field(None, description="folder of the files of mnist or fashion_mnist")
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
