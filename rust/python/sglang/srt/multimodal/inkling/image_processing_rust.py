"""
Images for Inkling, cut by `_multimodal.inkling`, and who of the two processors serves.

Pillow decodes here as well, so both processors see the same pixels.

Invariant: a processor is chosen once, when it is made. An error about an image is raised,
whoever finds it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from sglang.srt.multimodal.fallback import loaded_or_warn
from sglang.srt.multimodal.inkling.image_processing import InklingImageProcessor

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image
    from sglang.srt.multimodal.pillow_resize import PassOrder

#: Set to 1, the Rust path is used where it can be loaded.
SWITCH = "SGLANG_INKLING_RS_MM_PREPROCESS"


class InklingRustImageProcessor(InklingImageProcessor):
    """
    Takes encoded images to patches: decoded by Pillow on eight threads, cut and hashed by Rust.

    Raises an `ImportError`, or what else loading a library may raise, where the extension
    module cannot be had; `inkling_image_processor` falls back.
    """

    def __init__(
        self,
        patch_size: int = 40,
        rescale_frac: float | None = 2.0,
        rescale_cap: int | None = 2048,
        *,
        exif_transpose: bool = False,
        pass_order: PassOrder = "pillow13",
    ) -> None:
        super().__init__(patch_size, rescale_frac, rescale_cap, exif_transpose=exif_transpose, pass_order=pass_order)
        # Here and not above: the import builds what is not built, and may fail.
        from sglang.srt.rust_extensions._multimodal import inkling

        self._rescale_patchify_hash = inkling.rescale_patchify_hash

    def _patchify(self, rgb: Image.Image, file: bytes) -> tuple[int, int, NDArray[np.uint16], int | None]:
        pixels = np.ascontiguousarray(rgb)
        settings = self.patch_size, self.rescale_frac, self.rescale_cap
        return self._rescale_patchify_hash(pixels, file, *settings, pass_order=self.pass_order)


def inkling_image_processor(
    patch_size: int = 40,
    rescale_frac: float | None = 2.0,
    rescale_cap: int | None = 2048,
    *,
    exif_transpose: bool = False,
    pass_order: PassOrder = "pillow13",
) -> InklingImageProcessor:
    """
    The Rust processor if `SGLANG_INKLING_RS_MM_PREPROCESS` is 1 and it can be loaded, else Pillow's.

    A load that fails is a warning. The arguments are those of `InklingImageProcessor`.
    """

    def make(kind: type[InklingImageProcessor]) -> InklingImageProcessor:
        return kind(patch_size, rescale_frac, rescale_cap, exif_transpose=exif_transpose, pass_order=pass_order)

    rust = (
        loaded_or_warn(lambda: make(InklingRustImageProcessor), "Inkling images")
        if os.environ.get(SWITCH) == "1"
        else None
    )
    return rust or make(InklingImageProcessor)
