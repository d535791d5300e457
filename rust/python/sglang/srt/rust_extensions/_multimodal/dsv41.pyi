"""
Places an image on a grey canvas and cuts the canvas into channel-first bf16 patches.

The planner is in `sglang.srt.multimodal.deepseek_v41_image_processing`. This module does not
decode files; `common.image_decode_rgb` does, and can apply the EXIF orientation.
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
    Resize *arr*, a C-contiguous uint8 image of shape (height, width, 3), place it on a
    canvas, and cut the canvas into patches.

    Sizes are *(height, width)* and places *(top, left)*, in pixels. The image is resized
    to *resize_size* as Pillow does with `BICUBIC`, with *pass_order* as in
    `common.resize_rgb`. It is placed on a canvas of *output_size* at *padding_start*; the
    rest of the canvas has the value 127. A value v becomes bf16((v / 255 - 0.5) / 0.5),
    computed in float32 and rounded to nearest, ties to even.

    Returns the bits of *height* * *width* * 3 bf16 numbers, where *(height, width)* is
    *output_size*. Reshape them to (*height* / *patch_size* * *width* / *patch_size*, 3,
    *patch_size*, *patch_size*): patches row by row over the canvas, each in channel, row,
    column order.

    Raises `ValueError` for a number of channels other than 3, an array that is not
    C-contiguous, an invalid size or place ("invalid V4.1 image geometry": a side is 0, the
    canvas is not a multiple of the patch size, or the image exceeds the canvas), an unknown
    *pass_order*, or a canvas larger than memory; `TypeError` for another dtype or rank.
    """
