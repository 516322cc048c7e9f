"""Encoded images -> pixels: decoded no further than the size that is asked for.

JPEGs by simplejpeg, whose libjpeg-turbo writes straight into an array; whatever else Pillow knows, by Pillow.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch
    from PIL import Image

RESIZED_PER_CROP = 256 / 224  # evaluation as usual: the short side becomes 256, of which the middle 224 are seen
AREA = (0.08, 1.0)  # of an image, that a random crop keeps (Szegedy et al., "Going deeper with convolutions", 2015)
ASPECT = (3 / 4, 4 / 3)  # its width / height
HALVED_DOWN_TO = 2  # times what is needed: the rest is resized with antialiasing
TRIES = 10  # as torchvision's RandomResizedCrop


class Box(NamedTuple):
    """A part of an image, in pixels."""

    left: int
    top: int
    width: int
    height: int


def opened(content: bytes) -> Image.Image:
    """An image of which only the header is read. Raises OSError: of no known format."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(content))
    except UnidentifiedImageError:  # which names an object in memory
        raise OSError("of no known format" if content else "it is empty") from None


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


def size_of(content: bytes) -> tuple[int, int]:
    """(width, height). Raises OSError: of no known format."""
    import simplejpeg

    with suppress(ValueError):
        height, width, _, _ = simplejpeg.decode_jpeg_header(content)
        return width, height
    return opened(content).size


def decoded(content: bytes, least_width: int = 0, least_height: int = 0) -> np.ndarray:
    """An image (height, width, 3) uint8. A JPEG comes at a half of its size or less, if that is no less than asked for.

    What is no JPEG, or one that libjpeg warns of, is Pillow's to decode or to refuse, as it is for torchvision's ImageFolder.

    Raises:
        OSError: it can't be decoded.
    """
    import simplejpeg

    with suppress(ValueError):
        if simplejpeg.decode_jpeg_header(content)[2] != "CMYK":
            return simplejpeg.decode_jpeg(content, "RGB", min_width=least_width, min_height=least_height, min_factor=2)
    return np.array(_rgb(opened(content)))


def _rgb(image: Image.Image) -> Image.Image:
    """Eight bits of each channel. Pillow cuts off whatever is above 255, so that an image of 16 bits would come out white.

    Raises:
        OSError: its values have 32 bits, and nobody knows between which of them black and white lie.
    """
    from PIL import Image

    sixteen_bits = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
    if sixteen_bits:
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise OSError("its values have 32 bits and no known range; save it with 8 or 16 bits")
    return image.convert("RGB")


def seen(content: bytes, choose: Callable[[int, int], Box], side: int) -> torch.Tensor:
    """The part that `choose` picks of (width, height), resized: (3, side, side) uint8.

    Raises:
        OSError: the image can't be decoded.
    """
    import torch
    from torch.nn.functional import interpolate

    width, height = size_of(content)
    box = choose(width, height)
    least = HALVED_DOWN_TO * side
    pixels = decoded(content, math.ceil(least * width / box.width), math.ceil(least * height / box.height))
    across, down = pixels.shape[1] / width, pixels.shape[0] / height
    left, top = round(box.left * across), round(box.top * down)
    right, bottom = (
        max(left + 1, round((box.left + box.width) * across)),
        max(top + 1, round((box.top + box.height) * down)),
    )
    part = torch.from_numpy(pixels[top:bottom, left:right]).permute(2, 0, 1)[None]
    if part.shape[2:] != (side, side):
        dense = part.contiguous(memory_format=torch.channels_last)  # resized in half the time
        part = interpolate(dense, (side, side), mode="bilinear", antialias=True)
    return part[0]


def shrunk(content: bytes, short_side: int) -> Image.Image:
    """The image as RGB, its short side `short_side` pixels long."""
    from PIL import Image

    width, height = size_of(content)
    scale = short_side / min(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    pixels = decoded(content, HALVED_DOWN_TO * size[0], HALVED_DOWN_TO * size[1])
    return Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR)
