"""A dataset's part of the config: apart from the rest, so that a new key elsewhere prepares no dataset again."""

from __future__ import annotations

import os
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from dpscale.typed import Count, Flag, Strict, no_password


def _of_a_folder(url: str) -> str:
    if {"?", "#"} & set(url):
        raise ValueError("files' names are put behind it: the URL of a folder has no ? and no #; take that out")
    return url


Shape = Annotated[list[Count], Field(min_length=3, max_length=3)]
Classes = Annotated[int, Field(ge=2)]
Quality = Annotated[int, Field(ge=1, le=95)]  # above 95 libjpeg's files grow and look the same
Url = Annotated[
    str, StringConstraints(pattern=r"^https?://"), AfterValidator(no_password), AfterValidator(_of_a_folder)
]


class DatasetConfig(Strict):
    """What a dataset is made from, or how. Prepared once into data_dir, then shared by all experiments."""

    base: str | None = Field(
        None,
        description="the row of DATASETS that a name of your own stands for, such as image_folder; null = the name is a row",
    )
    source: Annotated[str, AfterValidator(no_password), AfterValidator(os.path.expanduser)] | None = Field(
        None,
        description="folder or archive (tar, zip) that already holds the dataset's files; null = they are fetched, where anybody may; of images, the folder above train and val, or a tar or zip of it",
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
    classes: Classes | None = Field(
        None,
        description="synthetic: its classes; null = 10. imagenet: null = all 1,000, whose images are counted; fewer = a "
        "part of it. image_folder: null = as many as there are",
    )
    vocabulary: Classes | None = Field(None, description="synthetic_tokens: different tokens; null = 256")
    context: Count | None = Field(None, description="synthetic_tokens: tokens of a sample; null = 64")
    crop: Count | None = Field(
        None, description="imagenet and image_folder: height and width that a model sees; null = 224"
    )
    augment: Flag | None = Field(
        None,
        description="imagenet and image_folder: crop and flip training images at random; false = as in evaluation; null = "
        "true",
    )
    short_side: Count | None = Field(
        None,
        description="imagenet and image_folder: larger images are resized to it when they are packed; null = bytes stay as "
        "they are",
    )
    quality: Quality | None = Field(None, description="with short_side: of the resized JPEGs; null = 90")

    @model_validator(mode="after")
    def _quality_of_what_is_resized(self) -> DatasetConfig:
        if self.quality is not None and self.short_side is None:
            raise ValueError("quality goes with short_side: without it no image is encoded again; remove it")
        return self
