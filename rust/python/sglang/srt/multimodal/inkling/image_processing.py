"""
The image processor of Inkling with Pillow and NumPy: turns files into patches.

The Rust processor, in `image_processing_rust`, is a subclass and shares settings, decoding and shapes with this one.

Invariant: the bits equal those of `_multimodal.inkling`.
"""

from __future__ import annotations

import io
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps
from sglang.srt.multimodal.bfloat16 import as_torch, bf16_bits
from sglang.srt.multimodal.pillow_resize import PassOrder, check_pass_order, resized

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

_MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
_STD = np.array([0.26862954, 0.2613026, 0.2757771], np.float32)
#: The index of padding in the value table, after the 256 sample values. Its raw value is -1.
_PADDING = 256

_THREADS = 8
#: The number of frames in which a still image is repeated.
_FRAMES = 2


@dataclass(frozen=True)
class ProcessedImage:
    """
    The patches of an image.
    """

    #: bf16 bits of shape (num_patches, 1, patch_size, patch_size, 3).
    patches: NDArray[np.uint16]
    #: Height and width in pixels after rescaling.
    size: tuple[int, int]
    #: `_multimodal.common.content_hash` of the file; None from the Pillow processor, which cannot compute it.
    content_hash: int | None

    @property
    def num_tokens(self) -> int:
        """
        The number of tokens of the image in a prompt: one per patch.
        """
        return len(self.patches)

    @property
    def pixel_values(self) -> NDArray[np.uint16]:
        """
        Bits of shape (num_patches, 2, patch_size, patch_size, 3). Read-only; both frames share the same memory.
        """
        return np.broadcast_to(self.patches, self._frames)

    def torch_pixel_values(self) -> Any:  # noqa: ANN401 -- torch is no dependency, so its types are not known
        """
        `pixel_values` as a torch tensor of dtype `bfloat16` over the same memory; raises `ImportError` without torch.
        """
        return as_torch(self.patches).expand(self._frames)

    @property
    def _frames(self) -> tuple[int, ...]:
        count, _, *patch = self.patches.shape
        return count, _FRAMES, *patch


class InklingImageProcessor:
    """
    Turns encoded images into patches: Pillow decodes on eight threads, NumPy cuts the patches.

    *patch_size* is the height and width of a patch in pixels. *rescale_frac* is the factor by which the longer side is
    scaled first; *rescale_cap* is the maximum length to which it may grow, in pixels. The defaults are the settings
    with which the model is served. *exif_transpose* applies the EXIF orientation of an image before the rescale.
    *pass_order* selects the Pillow version whose order of resize passes is used.
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
        _check(patch_size, rescale_frac, rescale_cap)
        check_pass_order(pass_order)
        self.patch_size = patch_size
        self.rescale_frac = rescale_frac
        self.rescale_cap = rescale_cap
        self.exif_transpose = exif_transpose
        self.pass_order: PassOrder = pass_order

    def __call__(self, files: Iterable[bytes]) -> list[ProcessedImage]:
        """
        Turn every file into patches, in order.

        If Pillow cannot decode a file, its exception is raised. If several files fail, the exception of the first of
        them is raised.
        """
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._process, files))

    def _process(self, file: bytes) -> ProcessedImage:
        with Image.open(io.BytesIO(file)) as image:
            if self.exif_transpose:
                ImageOps.exif_transpose(image, in_place=True)
            rgb = image.convert("RGB")
        height, width, bits, content_hash = self._patchify(rgb, file)
        patches = bits.reshape(-1, 1, self.patch_size, self.patch_size, 3)
        return ProcessedImage(patches, (height, width), content_hash)

    def _patchify(self, rgb: Image.Image, file: bytes) -> tuple[int, int, NDArray[np.uint16], int | None]:
        """
        Height, width, flat bits of all patches, and the content hash or None.
        """
        size = scaled_size(rgb.size, self.rescale_frac, self.rescale_cap)
        if size != rgb.size:
            rgb = resized(rgb, size, Image.Resampling.LANCZOS, self.pass_order)
        return rgb.height, rgb.width, patchify_with_numpy(np.asarray(rgb), self.patch_size), None


def _check(patch_size: int, rescale_frac: float | None, rescale_cap: int | None) -> None:
    if patch_size <= 0:
        raise ValueError(f"patch_size must be greater than zero, got {patch_size}")
    if rescale_frac is not None and not (math.isfinite(rescale_frac) and rescale_frac > 0):
        raise ValueError(f"rescale_frac must be finite and positive, got {rescale_frac}")
    if rescale_cap is not None:
        if rescale_cap <= 0:
            raise ValueError(f"rescale_cap must be positive, got {rescale_cap}")
        if rescale_frac is None or rescale_frac <= 1:
            raise ValueError(f"rescale_cap limits growth, so it needs a rescale_frac above 1, got {rescale_frac}")


def scaled_size(size: tuple[int, int], fraction: float | None, cap: int | None) -> tuple[int, int]:
    """
    The (width, height) of an image after its longer side is scaled by *fraction*. Halves round up.
    """
    if fraction is None:
        return size
    longer = max(size)
    target = longer * fraction
    if cap is not None:
        target = min(target, max(cap, longer))
    ratio = target / longer
    width, height = (max(1, math.floor(side * ratio + 0.5)) for side in size)
    return width, height


def patchify_with_numpy(rgb: NDArray[np.uint8], patch_size: int) -> NDArray[np.uint16]:
    """
    The implementation of `_multimodal.inkling.patchify_rgb` with NumPy.
    """
    height, width, _ = rgb.shape
    # The models are trained with one more column of padding if the width is a multiple of the patch size.
    rows, columns = -(-height // patch_size), width // patch_size + 1
    raw = np.append(np.arange(_PADDING, dtype=np.float32), np.float32(-1))
    table = bf16_bits((raw[:, None] * (np.float32(1) / np.float32(255)) - _MEAN) / _STD)
    canvas = np.broadcast_to(table[_PADDING], (rows * patch_size, columns * patch_size, 3)).copy()
    canvas[:height, :width] = table[rgb, np.arange(3)]
    patches = canvas.reshape(rows, patch_size, columns, patch_size, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(patches).ravel()
