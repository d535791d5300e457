"""
The image processor of Inkling with `_multimodal.inkling`, and the choice between the two processors.

Pillow decodes in both processors, so they process the same pixels.

Invariant: the choice is made once, when the processor is constructed. Errors about an image are raised and cause no
fallback.
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

#: If this environment variable is 1, `inkling_image_processor` uses the Rust processor if it can be loaded.
SWITCH = "SGLANG_INKLING_RS_MM_PREPROCESS"


class InklingRustImageProcessor(InklingImageProcessor):
    """
    Turns encoded images into patches: Pillow decodes on eight threads, Rust cuts the patches and computes the hashes.

    The constructor raises one of `fallback.LOAD_FAILURES` if the extension module cannot be loaded;
    `inkling_image_processor` falls back instead.
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
        # Not imported at module level: the import may build the extension, and may fail.
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
    The Rust processor if `SGLANG_INKLING_RS_MM_PREPROCESS` is 1 and it can be loaded, else the Pillow processor.

    A failed load is logged as a warning. The arguments are those of `InklingImageProcessor`.
    """

    def make(kind: type[InklingImageProcessor]) -> InklingImageProcessor:
        return kind(patch_size, rescale_frac, rescale_cap, exif_transpose=exif_transpose, pass_order=pass_order)

    rust = (
        loaded_or_warn(lambda: make(InklingRustImageProcessor), "Inkling images")
        if os.environ.get(SWITCH) == "1"
        else None
    )
    return rust or make(InklingImageProcessor)
