"""
Write `golden.json`, the expected results of family `inkling` for generated images: `python generate_golden.py`.

Pillow and NumPy generate images from seeds and compute their patches. The file, beside this script, contains the
digests. It changes only if a formula, Pillow or NumPy's random generator changes; update it deliberately.
"""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from PIL import Image
from pillow_oracle import Pixels, inkling, noise

if TYPE_CHECKING:
    from numpy.typing import NDArray

PATCH_SIZE = 40
#: Heights and widths: whole patches, partial patches on both sides, less than two patches, exactly one.
SIZES = [(480, 640), (200, 320), (37, 53), (40, 40)]
FILE = Path(__file__).with_name("golden.json")


class Fixture(TypedDict):
    """
    One image: its size, and the SHA-256 of its pixels and of the bits of its patches.
    """

    height: int
    width: int
    pixels: str
    patches: str


def digest(array: NDArray[Any]) -> str:
    """
    SHA-256 of an array's values in little-endian order.
    """
    return hashlib.sha256(array.astype(array.dtype.newbyteorder("<")).tobytes()).hexdigest()


def png(image: Pixels) -> bytes:
    """
    The image as a PNG file, which keeps every pixel.
    """
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def fixture(height: int, width: int) -> Fixture:
    """
    The expected results for one size, computed with Pillow and NumPy.
    """
    image = noise(height, width)
    return {"height": height, "width": width, "pixels": digest(image), "patches": digest(inkling(image, PATCH_SIZE)[2])}


def fixtures() -> list[Fixture]:
    """
    The expected results for all `SIZES`.
    """
    return [fixture(height, width) for height, width in SIZES]


if __name__ == "__main__":
    FILE.write_text(json.dumps(fixtures(), indent=2) + "\n", encoding="ascii")
