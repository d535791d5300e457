"""
Pillow's resize in a named order of passes, whichever Pillow is installed.

Pillow resizes along the rows and along the columns, rounds to 8 bits in between, and has
changed its mind on which comes first. Resizing one side is one pass, so two calls are any
order.

Invariant: the pixels depend on the image, the size, the filter and the order alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from PIL import Image

#: Whose rule: Pillow 13.0, Pillow 12.2 and 12.3, or up to 12.1, as in `_multimodal.common.resize_rgb`.
PassOrder: TypeAlias = Literal["pillow13", "pillow12_2", "horizontal"]


def check_pass_order(name: str) -> None:
    """
    Raises `ValueError` for a name that is none.
    """
    if name not in get_args(PassOrder):
        raise ValueError(f"unknown pass order {name!r}: expected one of {', '.join(get_args(PassOrder))}")


def resized(
    image: Image.Image, size: tuple[int, int], resample: Image.Resampling, pass_order: PassOrder
) -> Image.Image:
    """
    *image* at *size*, which is (width, height).
    """
    width, height = size
    first = (image.width, height) if _columns_first(image.size, size, pass_order) else (width, image.height)
    return image.resize(first, resample).resize(size, resample)


def _columns_first(before: tuple[int, int], after: tuple[int, int], pass_order: PassOrder) -> bool:
    saved_width, saved_height = before[0] - after[0], before[1] - after[1]
    if pass_order == "pillow13":
        return saved_height > max(0, 2 * saved_width)
    return pass_order == "pillow12_2" and saved_height > 0 and before[1] > 100 * before[0]
