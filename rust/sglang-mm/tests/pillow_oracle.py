"""
Reference results for the model families, computed with Pillow and NumPy: slow and simple.

Invariant: shares no code with the implementation under test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bits: TypeAlias = NDArray[np.uint16]
Pixels: TypeAlias = NDArray[np.uint8]
PassOrder: TypeAlias = Literal["pillow13", "pillow12_2", "horizontal"]

f32 = np.float32

MEAN = np.array([0.48145466, 0.4578275, 0.40821073], f32)
STD = np.array([0.26862954, 0.2613026, 0.2757771], f32)
#: The formula multiplies by this reciprocal instead of dividing by 255.
INV255 = f32(1 / 255)
PAD_RAW = f32(-1 / 255)


def bf16(values: NDArray[np.float32]) -> Bits:
    """
    Round to the nearest bf16, ties to even, and return its bits.
    """
    values = np.asarray(values, f32)
    low = values.view(np.uint32) >> np.uint32(16)
    below = (low << np.uint32(16)).view(f32).astype(np.float64)
    above = ((low + np.uint32(1)) << np.uint32(16)).view(f32).astype(np.float64)
    to_below, to_above = abs(values - below), abs(above - values)
    up = (to_above < to_below) | ((to_above == to_below) & (low % 2 == 1))
    nearest: NDArray[np.uint32] = low + up
    return nearest.astype(np.uint16)


def noise(height: int, width: int, seed: int = 0) -> Pixels:
    """
    A noise image, which makes every error visible. The same arguments give the same image.
    """
    return np.random.default_rng(height * 1009 + width + (seed << 32)).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )


def pixels(image: Image.Image) -> Pixels:
    """
    Copy the pixels of an image to an array.
    """
    return np.array(image)


def resized(image: Pixels, height: int, width: int, resample: Image.Resampling, order: PassOrder) -> Pixels:
    """
    Resize with the installed Pillow. For the pass order of an older Pillow, resize one axis at a time.
    """
    source = Image.fromarray(image)
    if order == "pillow13":
        return pixels(source.resize((width, height), resample))
    vertical_first = order == "pillow12_2" and source.height > 100 * source.width and height < source.height
    after_first_pass = (source.width, height) if vertical_first else (width, source.height)
    return pixels(source.resize(after_first_pass, resample).resize((width, height), resample))


def inkling_size(height: int, width: int, fraction: float | None, cap: int | None) -> tuple[int, int]:
    """
    Compute height and width after rescaling.
    """
    if fraction is None:
        return height, width
    longer = max(height, width)
    target = longer * fraction if cap is None else min(longer * fraction, max(cap, longer))
    ratio = target / longer
    return max(1, int(np.floor(height * ratio + 0.5))), max(1, int(np.floor(width * ratio + 0.5)))


def inkling(
    image: Pixels,
    patch_size: int,
    fraction: float | None = None,
    cap: int | None = None,
    *,
    order: PassOrder = "pillow13",
) -> tuple[int, int, Bits]:
    """
    Compute height and width after rescaling, and the flat bits of the patches.
    """
    height, width = inkling_size(image.shape[0], image.shape[1], fraction, cap)
    if (height, width) != image.shape[:2]:
        image = resized(image, height, width, Image.Resampling.LANCZOS, order)
    rows, columns = int(np.ceil(height / patch_size)), width // patch_size + 1
    # A value does not depend on its position, so the formula runs once per value and channel.
    raw = np.arange(256, dtype=f32)[:, None]
    values = bf16((raw * INV255 - MEAN) / STD)
    bits = np.tile(bf16((PAD_RAW - MEAN) / STD), (rows * patch_size, columns * patch_size, 1))
    bits[:height, :width] = values[image, np.arange(3)]
    patches = [
        bits[row * patch_size : (row + 1) * patch_size, column * patch_size : (column + 1) * patch_size].ravel()
        for row in range(rows)
        for column in range(columns)
    ]
    return height, width, np.concatenate(patches) if patches else np.empty(0, np.uint16)


@dataclass(frozen=True)
class Place:
    """
    The canvas of an image and its place there, in the order of the arguments of `dsv41.resize_patchify`.
    """

    output: tuple[int, int]
    resize: tuple[int, int]
    start: tuple[int, int]
    patch_size: int

    def arguments(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]:
        """
        All arguments after the image.
        """
        return self.output, self.resize, self.start, self.patch_size


def dsv41(image: Pixels, place: Place, *, order: PassOrder = "pillow13") -> Bits:
    """
    Compute the flat bits of the patches.
    """
    (height, width), (top, left), side = place.resize, place.start, place.patch_size
    canvas = np.full((*place.output, 3), 127, np.uint8)
    canvas[top : top + height, left : left + width] = resized(image, height, width, Image.Resampling.BICUBIC, order)
    bits = bf16((np.arange(256, dtype=f32) / f32(255) - f32(0.5)) / f32(0.5))[canvas]
    patches = [
        bits[row : row + side, column : column + side, channel].ravel()
        for row in range(0, place.output[0], side)
        for column in range(0, place.output[1], side)
        for channel in range(3)
    ]
    return np.concatenate(patches)
