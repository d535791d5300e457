"""
Pillow's resize with a chosen order of passes, independent of the installed Pillow version.

Pillow resizes in a horizontal and a vertical pass and rounds to 8 bits in between. Versions differ in which pass comes
first. Resizing only one side is one pass, so two calls give either order.

Invariant: the pixels depend only on the image, the size, the filter and the pass order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from PIL import Image

#: The rule of Pillow 13.0, of Pillow 12.2 and 12.3, or of Pillow up to 12.1, as in `_multimodal.common.resize_rgb`.
PassOrder: TypeAlias = Literal["pillow13", "pillow12_2", "horizontal"]


def check_pass_order(name: str) -> None:
    """
    Raise `ValueError` for an unknown name.
    """
    if name not in get_args(PassOrder):
        raise ValueError(f"unknown pass order {name!r}: expected one of {', '.join(get_args(PassOrder))}")


def resized(
    image: Image.Image, size: tuple[int, int], resample: Image.Resampling, pass_order: PassOrder
) -> Image.Image:
    """
    *image* resized to *size*, which is (width, height).
    """
    width, height = size
    vertical_first = _vertical_pass_is_first(image.size, size, pass_order)
    after_first_pass = (image.width, height) if vertical_first else (width, image.height)
    return image.resize(after_first_pass, resample).resize(size, resample)


def _vertical_pass_is_first(before: tuple[int, int], after: tuple[int, int], pass_order: PassOrder) -> bool:
    saved_width, saved_height = before[0] - after[0], before[1] - after[1]
    if pass_order == "pillow13":
        return saved_height > max(0, 2 * saved_width)
    return pass_order == "pillow12_2" and saved_height > 0 and before[1] > 100 * before[0]
