"""
Images as rows of channel-last patches of bf16.

Throughout: *patch_size* is the side of a square patch in pixels. An image h high and w
wide has ceil(h / *patch_size*) rows of floor(w / *patch_size*) + 1 patches, so a width of
whole patches gets one more column, all padding. Patches come as a flat array of bf16 bits
of the shape (rows * columns, *patch_size*, *patch_size*, 3): row by row over the image,
each of them row, column, channel.

A value v becomes bf16((v * (1 / 255) - mean) / std) with the mean and deviation of CLIP,
computed in float32 and rounded to nearest, ties to even; what the image does not cover has
the value of v = -1.

With *rescale_frac* the image is first resized as Pillow does with `LANCZOS`, in the order of
passes that *pass_order* names as in `common.resize_rgb`, to the size that
`common.scaled_dims` gives for it and *rescale_cap*. Heights and widths that come out are
those after rescaling.

Files are decoded as `common.image_decode_rgb` does. With *exif_transpose* an image is turned
before all else; *max_image_pixels* is the most that a header may announce, without a number
as many as Pillow takes.
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
    The patches of *arr*, a C-contiguous uint8 image of shape (height, width, 3), as it is.

    An image without rows has no patches; one without columns has patches of padding.

    Raises `ValueError` for a *patch_size* of 0, another number of channels, an array that
    is not C-contiguous, or patches beyond memory; `TypeError` for another dtype or rank.
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
    *(height, width, patches)* of an encoded image.

    Raises `ValueError` for a *patch_size* of 0, a file that cannot be decoded ("image
    decode: ..."), a *rescale_frac* that is not finite and positive, an unknown
    *pass_order*, or patches beyond memory.
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
    `decode_patchify` of every file, in order, on several threads.

    Raises `ValueError` as that does: the error of the first file, in order, that fails,
    and which one it is.
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
    *(height, width, patches, hash)* of every file, in order, on several threads; the hash
    is `common.content_hash` of the file.

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
    *(height, width, patches, hash)* of an image that the caller has decoded.

    The patches are those of *arr*, a C-contiguous uint8 image of shape (height, width, 3),
    and the hash is `common.content_hash` of *raw_bytes*, the file that it comes from.

    Raises `ValueError` for a *patch_size* of 0, another number of channels, an array that
    is not C-contiguous, a *rescale_frac* that is not finite and positive, an unknown
    *pass_order*, or patches beyond memory; `TypeError` for another dtype or rank.
    """
