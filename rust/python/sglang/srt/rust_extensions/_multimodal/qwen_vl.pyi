"""
Processes images and prompts for the Qwen-VL models: Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5.

*spec_json* is a JSON object with the settings of a checkpoint's image processor:

| field | type | meaning |
| --- | --- | --- |
| `image_token_id` | int | the placeholder token |
| `patch_size` | int > 0 | height and width of a patch in pixels |
| `merge_size` | int > 0 | patches along each side of a token |
| `temporal_patch_size` | int > 0 | frames in a patch; an image is repeated that many times |
| `min_pixels`, `max_pixels` | int > 0 | limits of the area in pixels after resizing |
| `image_mean`, `image_std` | 3 floats | mean and standard deviation of samples scaled to 0..1 |
| `resample` | `"aten_u8"` or `"pil"` | the image processor to reproduce: torchvision's (default) or Pillow's |
| `pass_order` | as in `common.resize_rgb` | only for `"pil"`; default `"pillow13"` |
| `exif_transpose`, `max_image_pixels` | bool, int | `exif_transpose` and `max_pixels` of `common.image_decode_rgb` |

Other fields, including `family`, are ignored. A grid is *(time, height, width)* in
patches; time is 1. An offset is the pair of indices *(first, last)*, both inclusive.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "mrope_image_only_py",
    "preprocess",
    "process_mm",
    "smart_resize_py",
]

_Encoded: TypeAlias = bytes | bytearray | memoryview | Sequence[int]
_Grid: TypeAlias = tuple[int, int, int]

def mrope_image_only_py(
    input_len: int,
    items: Sequence[tuple[int, int, int, int, int]],
    merge_size: int,
) -> tuple[NDArray[np.int64], int]:
    """
    Compute the positions of an expanded prompt of *input_len* tokens with images, equal to
    those of `get_rope_index` of Hugging Face transformers.

    An item is *(first token, last token, time, height, width)*, its grid in patches;
    items must be in order. Returns *(positions, delta)*: 3 * input_len int64 positions,
    first all of time, then height, then width; *delta* is the highest position plus one
    minus *input_len*.

    Raises `ValueError` if items overlap, are out of order or exceed the prompt, if a grid is
    not a still image whose height and width are multiples of *merge_size*, if the number of
    tokens of an item differs from that of its grid, or if memory is insufficient.
    """

def preprocess(data: _Encoded, spec_json: str) -> tuple[NDArray[np.float32], _Grid]:
    """
    Decode an image and cut it into patches, equal to `pixel_values` of the Hugging
    Face image processor that *spec_json* describes.

    Returns *(pixel_values, grid)*: time * height * width patches of
    3 * temporal_patch_size * patch_size² float32 values; the patches of a token are
    contiguous.

    Raises `ValueError` for an invalid spec, a file that cannot be decoded, an image whose
    longer side is more than 200 times its shorter side, or patches larger than memory.
    """

def process_mm(
    input_ids: Sequence[int] | None,
    images: Sequence[str | _Encoded],
    spec_json: str,
) -> tuple[
    list[int],
    NDArray[np.float32],
    list[_Grid],
    list[int],
    list[tuple[int, int]],
    NDArray[np.int64],
    int,
]:
    """
    Process a request. *input_ids* contains one placeholder per image; *images* contains the
    images in the same order, as encoded files, or as URLs, paths or base64 as in
    `common.fetch_bytes`.

    Returns *(input_ids, features, grids, hashes, offsets, mrope, mrope_delta)*: the
    expanded prompt; the `pixel_values` of all images, one after the other; for each image
    its grid, the `common.content_hash` of its file, and its offset in the expanded prompt;
    positions and delta as from `mrope_image_only_py`.

    Raises `ValueError` if the request has no tokens or no images, more than 64 images or more
    than 1.25 GiB of files, if an image cannot be fetched, decoded or processed, if features
    are larger than memory, or if the number of placeholders differs from that of images.
    """

def smart_resize_py(
    height: int,
    width: int,
    factor: int,
    min_pixels: int,
    max_pixels: int,
) -> tuple[int, int]:
    """
    Compute the *(height, width)* in pixels to which an image is resized: each side is a
    multiple of *factor* near its original length, and the area is between the limits if the
    image's shape allows it.

    The rule is `smart_resize` of Hugging Face transformers since 5.24.

    Raises `ValueError` for an empty image, an image whose longer side is more than 200 times
    its shorter side, a *factor* of 0, and limits that give a result without pixels or one
    that exceeds the address space.
    """
