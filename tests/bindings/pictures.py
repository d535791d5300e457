"""
Pictures in every format, and what Pillow and `common.image_decode_rgb` make of them.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np
from golden_pictures import decoded
from numpy.typing import NDArray
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common

Pixels: TypeAlias = NDArray[np.uint8]


def scene(height: int, width: int, mode: str = "RGB") -> Image.Image:
    """
    Smooth in the large and rough in the small, so that neither a shift nor a rounding stays hidden.
    """
    y, x = np.mgrid[:height, :width]
    waves = np.stack([128 + 100 * np.sin(x / 9 + y / 5), x * 255 / width, y * 255 / height], -1)
    rough = np.random.default_rng(height * 1009 + width).integers(-25, 26, (height, width, 3))
    return Image.fromarray(np.clip(waves + rough, 0, 255).astype(np.uint8)).convert(mode)


def saved(image: Image.Image | Pixels, kind: str = "PNG", **options: Any) -> bytes:  # noqa: ANN401 -- what each of Pillow's writers takes
    """
    The file of an image, or of its RGB pixels.
    """
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **options)
    return file.getvalue()


def ours(data: bytes, *, exif_transpose: bool = False) -> Pixels | None:
    try:
        height, width, pixels = common.image_decode_rgb(data, exif_transpose=exif_transpose)
    except ValueError as error:
        words = str(error)
    else:
        return pixels.reshape(height, width, 3)
    assert words.startswith("image decode: ")
    return None


def check(data: bytes, name: object, *, exif_transpose: bool = False) -> Pixels | None:
    """
    Both refuse, or both give the same pixels, which are returned.
    """
    expected = decoded(data, exif_transpose=exif_transpose)
    got = ours(data, exif_transpose=exif_transpose)
    assert (expected is None) == (got is None), f"{name}: Pillow {'refuses' if expected is None else 'decodes'}"
    if expected is not None:
        np.testing.assert_array_equal(expected, got, err_msg=str(name))
    return got


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))


def segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body
