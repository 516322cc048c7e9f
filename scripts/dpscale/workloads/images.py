"""Encoded images -> pixels: decoded no further than the part and the size that is asked for."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

RESIZED_PER_CROP = 256 / 224  # evaluation as usual: the short side becomes 256, of which the middle 224 are seen
AREA = (0.08, 1.0)  # of an image, that a random crop keeps (Szegedy et al., "Going deeper with convolutions", 2015)
ASPECT = (3 / 4, 4 / 3)  # its width / height
TRIES = 10  # as torchvision's RandomResizedCrop


class Box(NamedTuple):
    """A part of an image, in pixels."""

    left: int
    top: int
    width: int
    height: int


def opened(content: bytes) -> Image.Image:
    """An image of which only the header is read. Raises OSError: of no known format."""
    from PIL import Image

    return Image.open(io.BytesIO(content))


def central_box(width: int, height: int) -> Box:
    """What is left when the short side is resized to RESIZED_PER_CROP times the crop, and the middle is cut out."""
    side = round(min(width, height) / RESIZED_PER_CROP)
    return Box((width - side) // 2, (height - side) // 2, side, side)


def random_box(width: int, height: int, generator: np.random.Generator) -> Box:
    """A part of random area and shape anywhere in the image, by the rule of torchvision's RandomResizedCrop."""
    areas = width * height * generator.uniform(*AREA, TRIES)
    ratios = np.exp(generator.uniform(math.log(ASPECT[0]), math.log(ASPECT[1]), TRIES))
    widths, heights = np.rint(np.sqrt(areas * ratios)), np.rint(np.sqrt(areas / ratios))
    fits = np.flatnonzero((widths <= width) & (heights <= height) & (widths > 0) & (heights > 0))
    if not fits.size:  # the largest part in the middle whose shape is allowed
        part_width = min(width, round(height * ASPECT[1]))
        part_height = min(height, round(width / ASPECT[0]))
        return Box((width - part_width) // 2, (height - part_height) // 2, part_width, part_height)
    part_width, part_height = int(widths[fits[0]]), int(heights[fits[0]])
    left = int(generator.integers(0, width - part_width, endpoint=True))
    top = int(generator.integers(0, height - part_height, endpoint=True))
    return Box(left, top, part_width, part_height)


def seen(content: bytes, choose: Callable[[int, int], Box], side: int) -> np.ndarray:
    """The part that `choose` picks of (width, height), resized: (side, side, 3) uint8.

    Raises:
        OSError: the image can't be decoded.
    """
    from PIL import Image

    image = opened(content)
    width, height = image.size
    box = choose(width, height)
    _halve(image, 2 * side * width / box.width, 2 * side * height / box.height)
    across, down = image.width / width, image.height / height
    part = (box.left * across, box.top * down, (box.left + box.width) * across, (box.top + box.height) * down)
    return np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box=part))


def shrunk(image: Image.Image, short_side: int) -> Image.Image:
    """The image as RGB, its short side `short_side` pixels long."""
    from PIL import Image

    width, height = image.size
    scale = short_side / min(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    _halve(image, 2 * size[0], 2 * size[1])
    return image.convert("RGB").resize(size, Image.Resampling.BILINEAR)


def _halve(image: Image.Image, width: float, height: float) -> None:
    """Let a JPEG be decoded at a half, a quarter or an eighth of its size, if that is no less than asked for."""
    image.draft("RGB", (math.ceil(width), math.ceil(height)))
