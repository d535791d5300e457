"""
The golden images, and their pixels as decoded by Pillow.

The images are in `$SGLANG_GOLDEN/images_open`. Without that variable, the small set of the checkout is used.

Invariant: the installed Pillow decodes an image at each call, so tests never compare with stored pixels.
"""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHECKOUT = Path(__file__).resolve().parents[3]


def files() -> list[Path]:
    """
    Every golden image, sorted by name.
    """
    folder = Path(os.environ.get("SGLANG_GOLDEN") or CHECKOUT / "tests" / "golden", "images_open")
    found = sorted(path for path in folder.glob("*") if path.is_file() and path.name != "MANIFEST.tsv")
    if not found:
        raise FileNotFoundError(
            f"no golden images in {folder}: unset SGLANG_GOLDEN, or set it to a folder that contains `images_open`"
        )
    return found


def decoded(data: bytes, *, exif_transpose: bool = False) -> NDArray[np.uint8] | None:
    """
    The RGB pixels as decoded by Pillow, or None if it raises. Warnings are ignored.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                upright = ImageOps.exif_transpose(image) if exif_transpose else image
                return np.array(upright.convert("RGB"))
    except Exception:  # noqa: BLE001 -- each codec of Pillow raises exceptions of other types
        return None
