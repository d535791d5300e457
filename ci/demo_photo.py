"""
The demo's first interpreter: import the extension, decode and resize a photo, compare with Pillow.

Invariant: the only call of the toolkit is the import below; a build that the
module needs happens inside it.
"""

from __future__ import annotations

import time

START = time.perf_counter()
from sglang.srt.rust_extensions._multimodal import common  # noqa: E402  # after the clock starts

IMPORTED = time.perf_counter() - START

import sys  # noqa: E402  # after the import that is timed
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from PIL import Image, __version__  # noqa: E402

WIDTH, HEIGHT = 336, 224


def main(path: Path) -> int:
    """
    Print the results; return 1 if they differ from Pillow's.
    """
    data = path.read_bytes()
    start = time.perf_counter()
    height, width, flat = common.image_decode_rgb(data)
    pixels = np.asarray(flat).reshape(height, width, 3)
    small = np.asarray(common.resize_rgb(pixels, WIDTH, HEIGHT)).reshape(HEIGHT, WIDTH, 3)
    seconds = time.perf_counter() - start

    pillow_image = Image.open(path).convert("RGB")
    decoded_equal = bool(np.array_equal(pixels, np.asarray(pillow_image)))
    resized_equal = bool(
        np.array_equal(small, np.asarray(pillow_image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)))
    )

    print(f"import        {IMPORTED:.3f} s")
    print(f"photo         {path.name}, {len(data)} bytes, content hash {common.content_hash(data):016x}")
    print(f"decoded       {width} x {height}, equal to Pillow {__version__}: {_yes_or_no(decoded_equal)}")
    print(f"resized       {WIDTH} x {HEIGHT}, equal to Pillow {__version__}: {_yes_or_no(resized_equal)}")
    print(f"both took     {seconds * 1000:.1f} ms")
    return 0 if decoded_equal and resized_equal else 1


def _yes_or_no(equal: bool) -> str:
    return "yes, every byte" if equal else "NO"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
