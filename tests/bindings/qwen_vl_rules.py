"""
Slow reference implementations of the published rules of the Qwen-VL models, and settings for tests.

Invariant: nothing here shares code with the tested module.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

PAD = 151655
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


def spec(**fields: object) -> str:
    """
    The settings of Qwen2-VL as JSON, with some *fields* changed or added.
    """
    qwen2 = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 1003520}
    return json.dumps({"family": "qwen_vl", "image_token_id": PAD, **qwen2, **CLIP, **fields})


def tiny(**fields: object) -> str:
    """
    Settings with patches of 2 by 2 pixels and tokens of 4 by 4. An image whose sides are multiples of 4 is not resized.
    """
    return spec(**{"patch_size": 2, "min_pixels": 1, "max_pixels": 1 << 20, **HALF, **fields})


TINY = tiny()


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """
    Whether two results are equal, including the arrays in them.
    """
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


#: Lists of (number of text tokens before an image, height of the image in tokens, its width in tokens).
TEXTS_AND_IMAGES = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(1, 5)), max_size=6)


def smart_resize(height: int, width: int, factor: int, low: int, high: int) -> tuple[int, int] | None:
    """
    Height and width to which an image is resized, or None for an aspect ratio above 200.
    """
    if max(height, width) / min(height, width) > 200:
        return None
    rows, columns = (round(side / factor) * factor for side in (height, width))
    if rows * columns > high:
        beta = math.sqrt(height * width / high)
        rows, columns = (max(factor, math.floor(side / beta / factor) * factor) for side in (height, width))
    elif rows * columns < low:
        beta = math.sqrt(low / (height * width))
        rows, columns = (math.ceil(side * beta / factor) * factor for side in (height, width))
    return rows, columns


def patchify(image: NDArray[np.uint8], patch: int, merge: int, frames: int) -> NDArray[np.float32]:
    """
    The flat pixel values of an image whose sides are multiples of *patch* * *merge*.
    """
    mean, std = (np.array(CLIP[name], np.float32) for name in ("image_mean", "image_std"))
    values = (image.astype(np.float32) / np.float32(255) - mean) / std
    rows, columns = (side // (patch * merge) for side in image.shape[:2])
    blocks = values.reshape(rows, merge, patch, columns, merge, patch, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    flat: NDArray[np.float32] = np.repeat(blocks[:, :, :, :, :, None], frames, axis=5).ravel()
    return flat


def positions(
    length: int, items: Sequence[tuple[int, int, int, int, int]], merge: int
) -> tuple[NDArray[np.int64], int]:
    """
    The flat position rows of a prompt of *length* tokens, and the delta.
    """
    columns: list[tuple[int, int, int]] = []

    def next_position() -> int:
        return max((max(column) for column in columns), default=-1) + 1

    for start, _, time, height, width in items:
        while len(columns) < start:
            columns.append((next_position(),) * 3)
        first = next_position()
        columns += [
            (first + t, first + h, first + w)
            for t in range(time)
            for h in range(height // merge)
            for w in range(width // merge)
        ]
    while len(columns) < length:
        columns.append((next_position(),) * 3)
    return np.array(columns, np.int64).reshape(-1, 3).T.ravel(), next_position() - length
