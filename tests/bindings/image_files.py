"""
Writes images in every format, and compares how Pillow and `common.image_decode_rgb` decode them.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np
from golden_images import decoded
from numpy.typing import NDArray
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common

Pixels: TypeAlias = NDArray[np.uint8]


def scene(height: int, width: int, mode: str = "RGB") -> Image.Image:
    """
    An image of smooth waves with noise, so that both a shift and a rounding error change its pixels.
    """
    y, x = np.mgrid[:height, :width]
    waves = np.stack([128 + 100 * np.sin(x / 9 + y / 5), x * 255 / width, y * 255 / height], -1)
    rough = np.random.default_rng(height * 1009 + width).integers(-25, 26, (height, width, 3))
    return Image.fromarray(np.clip(waves + rough, 0, 255).astype(np.uint8)).convert(mode)


def saved(image: Image.Image | Pixels, kind: str = "PNG", **options: Any) -> bytes:  # noqa: ANN401 -- differs by format
    """
    An image, or an array of RGB pixels, as an encoded file.
    """
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(file, kind, **options)
    return file.getvalue()


def decoded_by_rust(data: bytes, *, exif_transpose: bool = False) -> Pixels | None:
    """
    The pixels from `image_decode_rgb`, or None if it refuses the file.
    """
    try:
        height, width, pixels = common.image_decode_rgb(data, exif_transpose=exif_transpose)
    except ValueError as error:
        message = str(error)
    else:
        return pixels.reshape(height, width, 3)
    assert message.startswith("image decode: ")
    return None


def check(data: bytes, name: object, *, exif_transpose: bool = False) -> Pixels | None:
    """
    Assert that Rust and Pillow either both refuse the file or both give the same pixels; return the pixels.
    """
    expected = decoded(data, exif_transpose=exif_transpose)
    got = decoded_by_rust(data, exif_transpose=exif_transpose)
    assert (expected is None) == (got is None), f"{name}: Pillow {'refuses' if expected is None else 'decodes'}"
    if expected is not None:
        np.testing.assert_array_equal(expected, got, err_msg=str(name))
    return got


def chunk(kind: bytes, body: bytes) -> bytes:
    """
    A PNG chunk.
    """
    return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))


def segment(marker: int, body: bytes) -> bytes:
    """
    A JPEG segment.
    """
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body
