"""
The golden pictures and what Pillow says of them.

They lie in `$SGLANG_GOLDEN/images_open`; without that variable, in the small set of the checkout.

Invariant: Pillow is asked for each picture anew, so a test sees the one that is installed.
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
    Every golden picture, sorted by name.
    """
    folder = Path(os.environ.get("SGLANG_GOLDEN") or CHECKOUT / "tests" / "golden", "images_open")
    found = sorted(path for path in folder.glob("*") if path.is_file() and path.name != "MANIFEST.tsv")
    if not found:
        raise FileNotFoundError(
            f"no golden pictures in {folder}: unset SGLANG_GOLDEN or point it at a folder that has `images_open`"
        )
    return found


def decoded(data: bytes, *, exif_transpose: bool = False) -> NDArray[np.uint8] | None:
    """
    The RGB pixels that Pillow finds, or nothing if it refuses. A warning is no refusal.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data)) as image:
                upright = ImageOps.exif_transpose(image) if exif_transpose else image
                return np.array(upright.convert("RGB"))
    except Exception:  # noqa: BLE001 -- Pillow refuses with whatever its codec raised
        return None
