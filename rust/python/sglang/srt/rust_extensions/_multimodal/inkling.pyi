"""
Cuts images into rows of channel-last bf16 patches.

*patch_size* is the height and width of a patch in pixels. An image of height h and width w
has ceil(h / *patch_size*) rows of floor(w / *patch_size*) + 1 patches. So a width that is a
multiple of *patch_size* gets one more column, which is padding. Patches are returned as a
flat array of bf16 bits. Reshape it to (rows * columns, *patch_size*, *patch_size*, 3):
patches row by row over the image, each in row, column, channel order.

A value v becomes bf16((v * (1 / 255) - mean) / std) with the mean and standard deviation of
CLIP, computed in float32 and rounded to nearest, ties to even. Padding has the value of
v = -1.

With *rescale_frac* the image is first resized as Pillow does with `LANCZOS`, with
*pass_order* as in `common.resize_rgb`. The new size is that of `common.scaled_dims` for
*rescale_frac* and *rescale_cap*. Returned heights and widths are those after rescaling.

Files are decoded as by `common.image_decode_rgb`. *exif_transpose* applies the EXIF
orientation first. *max_image_pixels* is the maximum number of pixels that a header may
state; None is the limit of Pillow.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "decode_patchify",
    "decode_patchify_batch",
    "patchify_rgb",
    "preprocess_images",
    "rescale_patchify_hash",
]

_Encoded: TypeAlias = bytes | bytearray | memoryview | Sequence[int]
_PassOrder: TypeAlias = Literal["pillow13", "pillow12_2", "horizontal"]

def patchify_rgb(arr: NDArray[np.uint8], patch_size: int) -> NDArray[np.uint16]:
    """
    Cut *arr*, a C-contiguous uint8 image of shape (height, width, 3), into patches without
    rescaling.

    An image of height 0 has no patches; an image of width 0 has patches of padding.

    Raises `ValueError` for a *patch_size* of 0, a number of channels other than 3, an array
    that is not C-contiguous, or patches larger than memory; `TypeError` for another dtype or
    rank.
    """

def decode_patchify(
    data: _Encoded,
    patch_size: int,
    rescale_frac: float | None = None,
    rescale_cap: int | None = None,
    *,
    pass_order: _PassOrder = "pillow13",
    exif_transpose: bool = False,
    max_image_pixels: int | None = None,
) -> tuple[int, int, NDArray[np.uint16]]:
    """
    Decode a file, rescale the image, and cut it into patches. Returns
    *(height, width, patches)*.

    Raises `ValueError` for a *patch_size* of 0, a file that cannot be decoded ("image
    decode: ..."), a *rescale_frac* that is not finite and positive, an unknown
    *pass_order*, or patches larger than memory.
    """

def decode_patchify_batch(
    datas: Sequence[_Encoded],
    patch_size: int,
    rescale_frac: float | None = None,
    rescale_cap: int | None = None,
    *,
    pass_order: _PassOrder = "pillow13",
    exif_transpose: bool = False,
    max_image_pixels: int | None = None,
) -> list[tuple[int, int, NDArray[np.uint16]]]:
    """
    Call `decode_patchify` for every file, on several threads. Results are in order.

    Raises `ValueError` as `decode_patchify`. If several files fail, the error of the first
    of them is raised. It contains the index of the file.
    """

def preprocess_images(
    datas: Sequence[_Encoded],
    patch_size: int,
    rescale_frac: float | None = None,
    rescale_cap: int | None = None,
    *,
    pass_order: _PassOrder = "pillow13",
    exif_transpose: bool = False,
    max_image_pixels: int | None = None,
) -> list[tuple[int, int, NDArray[np.uint16], int]]:
    """
    Like `decode_patchify_batch`, but returns *(height, width, patches, hash)* for every
    file; the hash is `common.content_hash` of the file.

    Raises `ValueError` as `decode_patchify_batch`.
    """

def rescale_patchify_hash(
    arr: NDArray[np.uint8],
    raw_bytes: _Encoded,
    patch_size: int,
    rescale_frac: float | None = None,
    rescale_cap: int | None = None,
    *,
    pass_order: _PassOrder = "pillow13",
) -> tuple[int, int, NDArray[np.uint16], int]:
    """
    Rescale an image that the caller has decoded and cut it into patches. Returns
    *(height, width, patches, hash)*.

    *arr* is a C-contiguous uint8 image of shape (height, width, 3). The hash is
    `common.content_hash` of *raw_bytes*, the file that the image was decoded from.

    Raises `ValueError` for a *patch_size* of 0, a number of channels other than 3, an array
    that is not C-contiguous, a *rescale_frac* that is not finite and positive, an unknown
    *pass_order*, or patches larger than memory; `TypeError` for another dtype or rank.
    """
