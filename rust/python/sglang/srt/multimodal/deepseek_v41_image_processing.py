"""
Images for DeepSeek-V4.1: planned here, carried out by `_multimodal.dsv41` or by Pillow.

A *plan* says how large an image becomes and where it lies on a grey canvas of whole
patches. The planner knows sizes alone; the processor takes pictures.

Invariant: Rust and Pillow give the same bits, and both follow the same plan. Pairs are
(height, width) or (top, left), except where they are Pillow's.
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

#: The grey of the canvas.
CANVAS_VALUE = 127


@dataclass(frozen=True)
class ImagePlan:
    """
    Where an image lies on which canvas; all in pixels.
    """

    #: Height and width of the canvas: whole patches.
    output_size: tuple[int, int]
    #: Height and width of the image on it.
    resize_size: tuple[int, int]
    #: Rows above the image and columns to its left.
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
    The settings of a checkpoint that decide what an image becomes.

    *patch_size* is its `vision_patch_size`; *downsample_ratio* is how many patches in a row
    become one token, each way. A limit that is None does not apply: *max_wh_ratio* bounds
    width / height, *min_pixels* bounds the area from below, *max_n_token* the tokens of an
    image from above.
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
                f"max_n_token must be at least {self._tokens((1, 1))}, which one patch takes; got {self.max_n_token}"
            )

    def plan(self, height: int, width: int) -> ImagePlan:
        """
        The plan for an image of *height* by *width* pixels.

        Raises `ValueError` for an image without pixels, or one so thin that it would vanish.
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
        How many tokens an image takes in a prompt: each row ends with one more, and two enclose it.
        """
        return self._tokens(plan.grid)

    def _grid(self, height: float, width: float) -> tuple[int, int]:
        if self.max_wh_ratio is not None and width > height * self.max_wh_ratio:
            width = height * self.max_wh_ratio
        area = height * width
        if self.min_pixels is not None and 0 < area < self.min_pixels:
            scale = math.sqrt(self.min_pixels / area)
            height, width = int(height * scale), int(width * scale)
        # Scaling may have left less than a pixel.
        grid = max(1, math.ceil(height / self.patch_size)), max(1, math.ceil(width / self.patch_size))
        if self.max_n_token is None or self._tokens(grid) <= self.max_n_token:
            return grid
        return self._largest(height, width, self.max_n_token)

    def _largest(self, height: float, width: float, max_n_token: int) -> tuple[int, int]:
        """
        As many patches along the longer side as it has whole ones and the tokens allow, the other in proportion, rounded down.
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
    The size that `PIL.ImageOps.contain` gives an image, in its order of operations: halves round to even.
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
    An image as its patches.
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
        The same memory as a torch tensor of dtype `bfloat16`; raises `ImportError` without torch.
        """
        return as_torch(self.pixel_values)


class DeepseekV41ImageProcessor:
    """
    Takes Pillow images to patches.

    *backend* "auto" is Rust, and Pillow with a warning where the extension module cannot be
    loaded; "pil" is Pillow. Once loaded, an error is an error: nothing falls back.
    *exif_transpose* turns an image as its EXIF data ask, before all else; *pass_order* names
    the Pillow whose order of passes a resize follows.
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
        #: What does the work.
        self.backend: Literal["rust", "pil"] = "pil" if rust is None else "rust"

    def __call__(self, images: Iterable[Image.Image]) -> list[ProcessedImage]:
        """
        Every image as patches, in order.

        Raises `ValueError` as `ImagePlanner.plan` does, and whatever Pillow raises for a damaged file.
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
    # Here and not above: the import builds what is not built, and may fail.
    from sglang.srt.rust_extensions._multimodal import dsv41

    resize_patchify = dsv41.resize_patchify

    def patchify(rgb: Image.Image, plan: ImagePlan, pass_order: PassOrder) -> NDArray[np.uint16]:
        place = plan.output_size, plan.resize_size, plan.padding_start, plan.patch_size
        return resize_patchify(np.ascontiguousarray(rgb), *place, pass_order=pass_order)

    return patchify


def patchify_with_pil(rgb: Image.Image, plan: ImagePlan, pass_order: PassOrder = "pillow13") -> NDArray[np.uint16]:
    """
    What `_multimodal.dsv41.resize_patchify` does, by Pillow and NumPy.
    """
    canvas = Image.new("RGB", plan.output_size[::-1], (CANVAS_VALUE,) * 3)
    canvas.paste(resized(rgb, plan.resize_size[::-1], Image.Resampling.BICUBIC, pass_order), plan.padding_start[::-1])
    values = np.arange(256, dtype=np.float32)
    table = bf16_bits((values / np.float32(255) - np.float32(0.5)) / np.float32(0.5))
    rows, columns = plan.grid
    pixels = table[np.asarray(canvas)].reshape(rows, plan.patch_size, columns, plan.patch_size, 3)
    return np.ascontiguousarray(pixels.transpose(0, 2, 4, 1, 3)).ravel()
