"""
The settings common to all families: EXIF orientation, pass order, and maximum pixels of a file.

These tests cover the Rust functions and the Python processors of `inkling` and `dsv41`. The settings of `qwen_vl` are
part of its JSON spec; `test_multimodal_qwen_vl.py` tests them.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pillow_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import saved
from PIL import Image, ImageOps
from pillow_oracle import PassOrder, Place, noise
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from sglang.srt.multimodal import pillow_resize
from sglang.srt.multimodal.deepseek_v41_image_processing import DeepseekV41ImageProcessor, ImagePlanner
from sglang.srt.multimodal.inkling.image_processing import InklingImageProcessor
from sglang.srt.multimodal.inkling.image_processing_rust import InklingRustImageProcessor, inkling_image_processor
from sglang.srt.rust_extensions._multimodal import dsv41, inkling

pytestmark = needs_pillow_13

ORDERS: tuple[PassOrder, ...] = get_args(PassOrder)
#: The eight orientations, and an invalid value.
ORIENTATIONS = range(1, 10)
Backend: TypeAlias = Literal["auto", "pil"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
PLANNER = ImagePlanner(14, 2, min_pixels=2000, max_n_token=60)


def oriented(orientation: int, kind: str, size: tuple[int, int] = (41, 23)) -> bytes:
    """
    A file with an EXIF orientation.
    """
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(noise(*size), kind, exif=exif)


def upright(data: bytes) -> pillow_oracle.Pixels:
    """
    The pixels of a file after Pillow applied its EXIF orientation.
    """
    with Image.open(io.BytesIO(data)) as image:
        return pillow_oracle.pixels(ImageOps.exif_transpose(image).convert("RGB"))


def check(expected: tuple[int, int, pillow_oracle.Bits], got: tuple[int, int, pillow_oracle.Bits]) -> None:
    assert expected[:2] == got[:2]
    np.testing.assert_array_equal(expected[2], got[2])


# Orientation.


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_inkling_applies_the_orientation_like_pillow(orientation: int, kind: str) -> None:
    """
    With `exif_transpose` all decoding functions apply the orientation before rescaling. The hash is that of the file.
    """
    data = oriented(orientation, kind)
    expected = pillow_oracle.inkling(upright(data), 8, 1.5, 50)

    check(expected, inkling.decode_patchify(data, 8, 1.5, 50, exif_transpose=True))
    check(expected, inkling.decode_patchify_batch([data], 8, 1.5, 50, exif_transpose=True)[0])
    processed = inkling.preprocess_images([data], 8, 1.5, 50, exif_transpose=True)[0]
    check(expected, processed[:3])
    assert processed[3] == inkling.preprocess_images([data], 8, 1.5, 50)[0][3]


@pytest.mark.parametrize("make", [InklingImageProcessor, InklingRustImageProcessor])
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_inkling_processors_apply_the_orientation_like_pillow(
    orientation: int, make: type[InklingImageProcessor]
) -> None:
    """
    Both the Pillow and the Rust processor apply the orientation as Pillow does.
    """
    data = oriented(orientation, "JPEG")
    height, width, bits = pillow_oracle.inkling(upright(data), 8, 1.5, 50)

    (image,) = make(8, 1.5, 50, exif_transpose=True)([data])

    assert (height, width) == image.size
    np.testing.assert_array_equal(bits, image.patches.ravel())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_dsv41_processor_applies_the_orientation_like_pillow(orientation: int, backend: Backend) -> None:
    """
    The plan is that of the transposed image, and the caller's image is not modified.
    """
    data = oriented(orientation, "PNG")
    turned = upright(data)
    plan = PLANNER.plan(*turned.shape[:2])
    place = Place(plan.output_size, plan.resize_size, plan.padding_start, plan.patch_size)

    with Image.open(io.BytesIO(data)) as image:
        (processed,) = DeepseekV41ImageProcessor(PLANNER, backend, exif_transpose=True)([image])
        assert image.size == (23, 41)
        assert image.getexif()[0x0112] == orientation

    assert plan.grid == processed.grid
    np.testing.assert_array_equal(pillow_oracle.dsv41(turned, place), processed.pixel_values.ravel())


def test_orientation_is_ignored_by_default() -> None:
    """
    The default equals Pillow's `convert("RGB")`, which ignores the orientation.
    """
    data = oriented(6, "PNG")
    stored = noise(41, 23)
    plan = PLANNER.plan(41, 23)

    check(pillow_oracle.inkling(stored, 8), inkling.decode_patchify(data, 8))
    for make in (InklingImageProcessor, InklingRustImageProcessor):
        assert make(8, None, None)([data])[0].size == (41, 23)
    with Image.open(io.BytesIO(data)) as image:
        assert DeepseekV41ImageProcessor(PLANNER)([image])[0].grid == plan.grid


# The pass order.

#: A size, a rescale fraction, and the pass orders whose pixels differ from those of `horizontal` for them.
SHAPES = {
    "very high": ((1001, 10), 0.5, {"pillow13", "pillow12_2"}),
    "portrait": ((401, 100), 0.5, {"pillow13"}),
    "square": ((90, 90), 0.5, set()),
}


@pytest.mark.parametrize(("size", "fraction", "vertical_first"), SHAPES.values(), ids=SHAPES)
def test_inkling_follows_the_pass_order(size: tuple[int, int], fraction: float, vertical_first: set[str]) -> None:
    """
    The Rust functions and both processors give the pixels of the selected Pillow version.
    """
    image = noise(*size)
    data = saved(image)
    by_order = {}

    for order in ORDERS:
        expected = pillow_oracle.inkling(image, 16, fraction, order=order)
        by_order[order] = expected[2]
        check(expected, inkling.rescale_patchify_hash(image, data, 16, fraction, pass_order=order)[:3])
        check(expected, inkling.decode_patchify(data, 16, fraction, pass_order=order))
        check(expected, inkling.decode_patchify_batch([data], 16, fraction, pass_order=order)[0])
        check(expected, inkling.preprocess_images([data], 16, fraction, pass_order=order)[0][:3])
        for make in (InklingImageProcessor, InklingRustImageProcessor):
            (processed,) = make(16, fraction, None, pass_order=order)([data])
            np.testing.assert_array_equal(expected[2], processed.patches.ravel(), err_msg=f"{make.__name__}, {order}")
    check(pillow_oracle.inkling(image, 16, fraction), inkling.decode_patchify(data, 16, fraction))
    assert vertical_first == {order for order in ORDERS if not np.array_equal(by_order[order], by_order["horizontal"])}


@pytest.mark.parametrize(("size", "fraction", "vertical_first"), SHAPES.values(), ids=SHAPES)
def test_dsv41_follows_the_pass_order(size: tuple[int, int], fraction: float, vertical_first: set[str]) -> None:
    """
    The Rust function and both back ends of the processor give the pixels of the selected Pillow version.
    """
    image = noise(*size)
    # A patch is one pixel, so this limit on tokens scales the image by the fraction.
    planner = ImagePlanner(1, 1, max_n_token=round(size[0] * fraction) * (round(size[1] * fraction) + 1) + 2)
    plan = planner.plan(*size)
    place = Place(plan.output_size, plan.resize_size, plan.padding_start, plan.patch_size)
    by_order = {}

    for order in ORDERS:
        expected = by_order[order] = pillow_oracle.dsv41(image, place, order=order)
        np.testing.assert_array_equal(
            expected, dsv41.resize_patchify(image, *place.arguments(), pass_order=order), err_msg=order
        )
        for backend in BACKENDS:
            (processed,) = DeepseekV41ImageProcessor(planner, backend, pass_order=order)([Image.fromarray(image)])
            np.testing.assert_array_equal(expected, processed.pixel_values.ravel(), err_msg=f"{backend}, {order}")
    np.testing.assert_array_equal(pillow_oracle.dsv41(image, place), dsv41.resize_patchify(image, *place.arguments()))
    assert vertical_first == {order for order in ORDERS if not np.array_equal(by_order[order], by_order["horizontal"])}


SIDES = st.one_of(st.integers(1, 9), st.integers(1, 300))


@settings(max_examples=200, deadline=None)
@given(before=st.tuples(SIDES, SIDES), after=st.tuples(SIDES, SIDES), lanczos=st.booleans())
def test_two_resize_calls_equal_one(before: tuple[int, int], after: tuple[int, int], lanczos: bool) -> None:
    """
    In the pass order of the installed Pillow, resizing one side after the other gives the bytes of one call.
    """
    resample = Image.Resampling.LANCZOS if lanczos else Image.Resampling.BICUBIC
    image = Image.fromarray(noise(*before))

    np.testing.assert_array_equal(
        image.resize(after[::-1], resample), pillow_resize.resized(image, after[::-1], resample, "pillow13")
    )


# The maximum pixels of a file, and unknown pass orders.


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda data, cap: inkling.decode_patchify(data, 8, max_image_pixels=cap), id="one"),
        pytest.param(lambda data, cap: inkling.decode_patchify_batch([data], 8, max_image_pixels=cap), id="batch"),
        pytest.param(lambda data, cap: inkling.preprocess_images([data], 8, max_image_pixels=cap), id="hashed"),
    ],
)
def test_max_image_pixels_limits_the_pixels(call: Callable[[bytes, int], object]) -> None:
    """
    An image of exactly the maximum is decoded; the error for a larger one names the setting.
    """
    data = oriented(1, "PNG", (20, 30))

    call(data, 600)
    with pytest.raises(
        ValueError, match=r"30x20 is 600 pixels, over the cap of 599; raise the setting .*`max_image_pixels`"
    ):
        call(data, 599)


IMAGE = noise(4, 6)
UNKNOWN: Any = "vertical"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: inkling.decode_patchify(b"", 4, pass_order=UNKNOWN), id="inkling, file"),
        pytest.param(lambda: inkling.decode_patchify_batch([], 4, pass_order=UNKNOWN), id="inkling, batch"),
        pytest.param(lambda: inkling.preprocess_images([], 4, pass_order=UNKNOWN), id="inkling, hashed"),
        pytest.param(lambda: inkling.rescale_patchify_hash(IMAGE, b"", 4, pass_order=UNKNOWN), id="inkling, array"),
        pytest.param(lambda: dsv41.resize_patchify(IMAGE, (8, 8), (4, 6), (4, 2), 4, pass_order=UNKNOWN), id="dsv41"),
        pytest.param(lambda: InklingImageProcessor(pass_order=UNKNOWN), id="inkling, Pillow"),
        pytest.param(lambda: InklingRustImageProcessor(pass_order=UNKNOWN), id="inkling, Rust"),
        pytest.param(lambda: inkling_image_processor(pass_order=UNKNOWN), id="inkling, either"),
        pytest.param(lambda: DeepseekV41ImageProcessor(PLANNER, pass_order=UNKNOWN), id="dsv41, processor"),
    ],
)
def test_unknown_pass_order_is_refused(call: Callable[[], object]) -> None:
    """
    Every function and constructor refuses it, and the message lists the known names.
    """
    with pytest.raises(ValueError, match=r"unknown pass order .vertical.: expected .*pillow13.*pillow12_2.*horizontal"):
        call()
