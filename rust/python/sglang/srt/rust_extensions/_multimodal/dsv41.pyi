"""
Images on a grey canvas, cut into channel-first patches of bf16.

Plans come from `sglang.srt.multimodal.deepseek_v41_image_processing`. Nothing is decoded here:
`common.image_decode_rgb` does it, and turns an image by its EXIF data where that is wanted.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["resize_patchify"]

def resize_patchify(
    arr: NDArray[np.uint8],
    output_size: tuple[int, int],
    resize_size: tuple[int, int],
    padding_start: tuple[int, int],
    patch_size: int,
    /,
    *,
    pass_order: Literal["pillow13", "pillow12_2", "horizontal"] = "pillow13",
) -> NDArray[np.uint16]:
    """
    Put *arr*, a C-contiguous uint8 image of shape (height, width, 3), on its canvas and
    cut that into patches.

    Sizes are *(height, width)* and places *(top, left)*, in pixels. The image is resized
    to *resize_size* as Pillow does with `BICUBIC`, in the order of passes that *pass_order*
    names as in `common.resize_rgb`, and laid on a canvas of *output_size* at
    *padding_start*; the rest of the canvas has the value 127. A value v becomes
    bf16((v / 255 - 0.5) / 0.5), computed in float32 and rounded to nearest, ties to even.

    Gives the bits of height * width * 3 bf16 numbers, which have the shape
    (height / *patch_size* * width / *patch_size*, 3, *patch_size*, *patch_size*): patches
    row by row over the canvas, each of them channel, row, column.

    Raises `ValueError` for another number of channels, an array that is not C-contiguous,
    a size or a place that makes no sense ("invalid V4.1 image geometry": a side of 0, a
    canvas that is not whole patches, an image that sticks out of it), an unknown
    *pass_order*, or a canvas beyond memory; `TypeError` for another dtype or rank.
    """
