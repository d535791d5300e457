"""
The image processor of DeepSeek-V4.1. Plans are computed here; `_multimodal.dsv41` or Pillow executes them.

An `ImagePlan` holds the size of a resized image and its place on a grey canvas, which is a whole number of patches high
and wide. `ImagePlanner` computes plans from sizes only. `DeepseekV41ImageProcessor` processes images.

Invariant: Rust and Pillow execute the same plan and give the same bits. Pairs are (height, width) or (top, left),
except the arguments of Pillow functions.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image, ImageOps
from sglang.srt.multimodal.bfloat16 import as_torch, bf16_bits
from sglang.srt.multimodal.fallback import loaded_or_warn
from sglang.srt.multimodal.pillow_resize import PassOrder, check_pass_order, resized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

#: The sample value of the canvas.
CANVAS_VALUE = 127


@dataclass(frozen=True)
class ImagePlan:
    """
    The size of the canvas, and the size and place of the image on it. All values are pixels.
    """

    #: Height and width of the canvas, multiples of `patch_size`.
    output_size: tuple[int, int]
    #: Height and width of the resized image.
    resize_size: tuple[int, int]
    #: Rows of canvas above the image and columns to its left.
    padding_start: tuple[int, int]
    patch_size: int

    @property
    def grid(self) -> tuple[int, int]:
        """
        Rows and columns of patches.
        """
        height, width = self.output_size
        return height // self.patch_size, width // self.patch_size


@dataclass(frozen=True)
class ImagePlanner:
    """
    Computes plans from the settings of a checkpoint.

    *patch_size* is the checkpoint's `vision_patch_size`. *downsample_ratio* is the number of patches along each side of
    a token. *max_wh_ratio* is the maximum of width / height, *min_pixels* the minimum area, and *max_n_token* the
    maximum number of tokens of an image. A limit of None does not apply.
    """

    patch_size: int
    downsample_ratio: int
    max_wh_ratio: float | None = None
    min_pixels: int | None = None
    max_n_token: int | None = None

    def __post_init__(self) -> None:
        for name in ("patch_size", "downsample_ratio", "max_wh_ratio", "min_pixels", "max_n_token"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive, got {value}")
        if self.max_n_token is not None and self.max_n_token < self._tokens((1, 1)):
            raise ValueError(
                f"max_n_token must be at least {self._tokens((1, 1))}, the tokens of one patch; got {self.max_n_token}"
            )

    def plan(self, height: int, width: int) -> ImagePlan:
        """
        The plan for an image of *height* by *width* pixels.

        Raises `ValueError` for an image without pixels, and for one so thin that a side would be resized to 0.
        """
        if height <= 0 or width <= 0:
            raise ValueError(f"an image must have pixels, got {height} high, {width} wide")
        rows, columns = self._grid(height, width)
        output = rows * self.patch_size, columns * self.patch_size
        if self.max_wh_ratio is not None and width >= self.max_wh_ratio * height:
            return ImagePlan(output, output, (0, 0), self.patch_size)
        resize = _aspect_fit((height, width), output)
        if 0 in resize:
            raise ValueError(
                f"an image {height} high, {width} wide is too thin for a canvas {output[0]} high, {output[1]} wide: "
                "set max_wh_ratio or raise max_n_token"
            )
        start = round((output[0] - resize[0]) / 2), round((output[1] - resize[1]) / 2)
        return ImagePlan(output, resize, start, self.patch_size)

    def token_grid(self, plan: ImagePlan) -> tuple[int, int]:
        """
        Rows and columns of tokens.
        """
        return self._token_grid(plan.grid)

    def num_tokens(self, plan: ImagePlan) -> int:
        """
        The number of tokens of an image in a prompt.

        The number counts the tokens of the grid, one more per row, one before the image, and one after it.
        """
        return self._tokens(plan.grid)

    def _grid(self, height: float, width: float) -> tuple[int, int]:
        if self.max_wh_ratio is not None and width > height * self.max_wh_ratio:
            width = height * self.max_wh_ratio
        area = height * width
        if self.min_pixels is not None and 0 < area < self.min_pixels:
            scale = math.sqrt(self.min_pixels / area)
            height, width = int(height * scale), int(width * scale)
        # Scaling may have reduced a side to 0.
        grid = max(1, math.ceil(height / self.patch_size)), max(1, math.ceil(width / self.patch_size))
        if self.max_n_token is None or self._tokens(grid) <= self.max_n_token:
            return grid
        return self._largest_grid(height, width, self.max_n_token)

    def _largest_grid(self, height: float, width: float, max_n_token: int) -> tuple[int, int]:
        """
        The largest grid of the image's proportions with at most *max_n_token* tokens.

        The longer side has at most the number of whole patches that fit in it. The shorter side is in proportion,
        rounded down.
        """
        longer, shorter = max(height, width), min(height, width)

        def grid(patches: int) -> tuple[int, int]:
            other = max(1, int(patches * shorter / longer))
            return (patches, other) if height >= width else (other, patches)

        candidates = range(1, max(1, int(longer / self.patch_size)) + 1)
        return grid(bisect_right(candidates, max_n_token, key=lambda patches: self._tokens(grid(patches))))

    def _token_grid(self, grid: tuple[int, int]) -> tuple[int, int]:
        rows, columns = grid
        return -(-rows // self.downsample_ratio), -(-columns // self.downsample_ratio)

    def _tokens(self, grid: tuple[int, int]) -> int:
        rows, columns = self._token_grid(grid)
        return rows * (columns + 1) + 2


def _aspect_fit(image: tuple[int, int], canvas: tuple[int, int]) -> tuple[int, int]:
    """
    The size that `PIL.ImageOps.contain` computes, with the same operations in the same order. Halves round to even.
    """
    (height, width), (canvas_height, canvas_width) = image, canvas
    ratio, canvas_ratio = width / height, canvas_width / canvas_height
    if ratio > canvas_ratio:
        return round(height / width * canvas_width), canvas_width
    if ratio < canvas_ratio:
        return canvas_height, round(width / height * canvas_height)
    return canvas


@dataclass(frozen=True)
class ProcessedImage:
    """
    The patches of an image, and the sizes of its grids.
    """

    #: bf16 bits of shape (rows * columns, 3, patch_size, patch_size).
    pixel_values: NDArray[np.uint16]
    #: Rows and columns of patches.
    grid: tuple[int, int]
    #: Rows and columns of tokens.
    token_grid: tuple[int, int]
    num_tokens: int

    def torch_pixel_values(self) -> Any:  # noqa: ANN401 -- torch is no dependency, so its types are not known
        """
        `pixel_values` as a torch tensor of dtype `bfloat16` over the same memory; raises `ImportError` without torch.
        """
        return as_torch(self.pixel_values)


class DeepseekV41ImageProcessor:
    """
    Turns Pillow images into patches.

    *backend* "auto" uses Rust; if the extension module cannot be loaded, it logs a warning and uses Pillow. *backend*
    "pil" always uses Pillow. Errors after loading are raised and cause no fallback. *exif_transpose* applies the EXIF
    orientation of an image first. *pass_order* selects the Pillow version whose order of resize passes is used.
    """

    def __init__(
        self,
        planner: ImagePlanner,
        backend: Literal["auto", "pil"] = "auto",
        *,
        exif_transpose: bool = False,
        pass_order: PassOrder = "pillow13",
    ) -> None:
        if backend not in ("auto", "pil"):
            raise ValueError(f"unknown backend {backend!r}: expected 'auto' or 'pil'")
        check_pass_order(pass_order)
        self.planner = planner
        self.exif_transpose = exif_transpose
        self.pass_order: PassOrder = pass_order
        rust = loaded_or_warn(_load_rust, type(self).__name__) if backend == "auto" else None
        self._patchify = rust or patchify_with_pil
        #: The implementation in use.
        self.backend: Literal["rust", "pil"] = "pil" if rust is None else "rust"

    def __call__(self, images: Iterable[Image.Image]) -> list[ProcessedImage]:
        """
        Turn every image into patches, in order.

        Raises `ValueError` as `ImagePlanner.plan` does, and Pillow's exceptions for damaged files.
        """
        return [self._process(image) for image in images]

    def _process(self, image: Image.Image) -> ProcessedImage:
        upright = ImageOps.exif_transpose(image) if self.exif_transpose else image
        rgb = upright.convert("RGB")
        plan = self.planner.plan(rgb.height, rgb.width)
        rows, columns = plan.grid
        patches = self._patchify(rgb, plan, self.pass_order).reshape(
            rows * columns, 3, plan.patch_size, plan.patch_size
        )
        return ProcessedImage(patches, plan.grid, self.planner.token_grid(plan), self.planner.num_tokens(plan))


def _load_rust() -> Callable[[Image.Image, ImagePlan, PassOrder], NDArray[np.uint16]]:
    # Not imported at module level: the import may build the extension, and may fail.
    from sglang.srt.rust_extensions._multimodal import dsv41

    resize_patchify = dsv41.resize_patchify

    def patchify(rgb: Image.Image, plan: ImagePlan, pass_order: PassOrder) -> NDArray[np.uint16]:
        place = plan.output_size, plan.resize_size, plan.padding_start, plan.patch_size
        return resize_patchify(np.ascontiguousarray(rgb), *place, pass_order=pass_order)

    return patchify


def patchify_with_pil(rgb: Image.Image, plan: ImagePlan, pass_order: PassOrder = "pillow13") -> NDArray[np.uint16]:
    """
    The implementation of `_multimodal.dsv41.resize_patchify` with Pillow and NumPy.
    """
    canvas = Image.new("RGB", plan.output_size[::-1], (CANVAS_VALUE,) * 3)
    canvas.paste(resized(rgb, plan.resize_size[::-1], Image.Resampling.BICUBIC, pass_order), plan.padding_start[::-1])
    values = np.arange(256, dtype=np.float32)
    table = bf16_bits((values / np.float32(255) - np.float32(0.5)) / np.float32(0.5))
    rows, columns = plan.grid
    pixels = table[np.asarray(canvas)].reshape(rows, plan.patch_size, columns, plan.patch_size, 3)
    return np.ascontiguousarray(pixels.transpose(0, 2, 4, 1, 3)).ravel()
