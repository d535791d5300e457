"""
Pictures and prompts of the Qwen-VL models: Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5.

*spec_json* is a JSON object with the settings of a checkpoint's image processor:

| field | type | meaning |
| --- | --- | --- |
| `image_token_id` | int | the placeholder token |
| `patch_size` | int > 0 | pixels along a patch |
| `merge_size` | int > 0 | patches along a token |
| `temporal_patch_size` | int > 0 | frames in a patch; a picture is repeated as often |
| `min_pixels`, `max_pixels` | int > 0 | limits of the area after resizing |
| `image_mean`, `image_std` | 3 floats | of samples from 0 to 1 |
| `resample` | `"aten_u8"` or `"pil"` | the image processor to follow: torchvision's (default) or Pillow's |
| `pass_order` | as in `common.resize_rgb` | for `"pil"`; default `"pillow13"` |
| `exif_transpose`, `max_image_pixels` | bool, int | `exif_transpose` and `max_pixels` of `common.image_decode_rgb` |

Other fields, `family` among them, are ignored. A grid is *(time, height, width)* in
patches; time is 1. An offset is *(first, last)*, both included.
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
    The positions of a prompt of *input_len* tokens in which pictures stand, as
    `get_rope_index` of Hugging Face transformers gives them.

    An item is *(first token, last token, time, height, width)*, its grid in patches;
    items come in order. Gives *(positions, delta)*: 3 * input_len int64 positions,
    all of time, then height, then width; *delta* is the highest position plus one
    minus *input_len*.

    Raises `ValueError` if items overlap or lie outside, if a grid is no still picture
    that divides by *merge_size*, or if it has not as many tokens as the item.
    """

def preprocess(data: _Encoded, spec_json: str) -> tuple[NDArray[np.float32], _Grid]:
    """
    Decode a picture and cut it into patches, equal to `pixel_values` of the Hugging
    Face image processor that *spec_json* describes.

    Gives *(pixel_values, grid)*: time * height * width patches of
    3 * temporal_patch_size * patch_size² float32 values, the patches of a token next to
    each other.

    Raises `ValueError` for a spec that cannot be used, a file that cannot be decoded,
    a picture more than 200 times longer than wide (or the reverse), or patches beyond
    memory.
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
    Process a request: *input_ids* hold one placeholder per picture, *images* the
    pictures in that order, as encoded files or as URLs, paths or base64 for
    `common.fetch_bytes`.

    Gives *(input_ids, features, grids, hashes, offsets, mrope, mrope_delta)*: the
    expanded prompt; `preprocess`'s values of all pictures, one after the other; for
    each picture its grid, the `common.content_hash` of its file, and its offset in the
    prompt; positions and delta as `mrope_image_only_py` gives them.

    Raises `ValueError` for a request without tokens or pictures or with more than 64
    pictures or 1.25 GiB of files, for a picture that cannot be had, decoded or
    processed, for features beyond memory, and for a number of placeholders that is not
    the number of pictures.
    """

def smart_resize_py(
    height: int,
    width: int,
    factor: int,
    min_pixels: int,
    max_pixels: int,
) -> tuple[int, int]:
    """
    The *(height, width)* in pixels that a picture is resized to: multiples of *factor*
    near its own sides, with an area between the limits where its shape allows.

    The rule is `smart_resize` of Hugging Face transformers from 5.24 on.

    Raises `ValueError` for an empty picture, one more than 200 times longer than wide
    (or the reverse), a *factor* of 0, and limits that leave no pixels.
    """
