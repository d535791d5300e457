"""
`_multimodal.dsv41` gives the values of the reference implementation with Pillow and NumPy, and the documented errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import golden_images
import numpy as np
import pillow_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pillow_oracle import Place, noise
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from sglang.srt.multimodal.deepseek_v41_image_processing import ImagePlanner
from sglang.srt.rust_extensions._multimodal import dsv41


@pytest.mark.parametrize(("value", "expected"), [(0, 0xBF80), (127, 0xBB81), (128, 0x3B81), (255, 0x3F80)])
def test_values_equal_the_published_values(value: int, expected: int) -> None:
    """
    The image has one pixel, and the canvas has one pixel more.
    """
    pixel = np.full((1, 1, 3), value, np.uint8)

    assert [expected] * 3 + [0xBB81] * 3 == dsv41.resize_patchify(pixel, (1, 2), (1, 1), (0, 0), 1).tolist()


@needs_pillow_13
@pytest.mark.parametrize(
    ("size", "place"),
    [
        pytest.param((53, 37), Place((56, 56), (56, 39), (0, 8), 14), id="narrow"),
        pytest.param((37, 53), Place((56, 56), (39, 56), (8, 0), 14), id="low"),
        pytest.param((28, 28), Place((28, 28), (28, 28), (0, 0), 14), id="not resized"),
        pytest.param((91, 157), Place((112, 168), (97, 168), (7, 0), 14), id="slightly enlarged"),
    ],
)
def test_patches_equal_the_oracles_for_the_published_cases(size: tuple[int, int], place: Place) -> None:
    """
    The four shapes are those published with the model.
    """
    bits = dsv41.resize_patchify(noise(*size), *place.arguments())

    assert bits.dtype == np.uint16
    assert bits.shape == (place.output[0] * place.output[1] * 3,)
    np.testing.assert_array_equal(pillow_oracle.dsv41(noise(*size), place), bits)


PLANNERS = {
    "padded": ImagePlanner(14, 3, min_pixels=200 * 200, max_n_token=1100),
    "stretched": ImagePlanner(14, 2, max_wh_ratio=1.0, max_n_token=300),
}


@needs_pillow_13
@pytest.mark.parametrize("path", golden_images.files(), ids=lambda path: path.name)
@pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS)
def test_patches_of_golden_images_equal_the_oracles(planner: ImagePlanner, path: Path) -> None:
    """
    Every golden image that Pillow decodes is placed as the planner plans it.
    """
    image = golden_images.decoded(path.read_bytes())
    if image is None:
        return
    plan = planner.plan(*image.shape[:2])
    place = Place(plan.output_size, plan.resize_size, plan.padding_start, plan.patch_size)

    np.testing.assert_array_equal(pillow_oracle.dsv41(image, place), dsv41.resize_patchify(image, *place.arguments()))


@st.composite
def places(draw: st.DrawFn) -> Place:
    """
    Any valid place of an image on a canvas.
    """
    patch_size = draw(st.integers(1, 20))
    rows, columns = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    output = rows * patch_size, columns * patch_size
    resize = draw(st.tuples(st.integers(1, output[0]), st.integers(1, output[1])))
    start = draw(st.tuples(st.integers(0, output[0] - resize[0]), st.integers(0, output[1] - resize[1])))
    return Place(output, resize, start, patch_size)


@needs_pillow_13
@settings(max_examples=200, deadline=None)
@given(size=st.tuples(st.integers(1, 150), st.integers(1, 150)), place=places())
def test_patches_equal_the_oracles_for_any_size_and_place(size: tuple[int, int], place: Place) -> None:
    """
    Images of random content and size are put at random valid places on the canvas.
    """
    image = noise(*size)

    np.testing.assert_array_equal(pillow_oracle.dsv41(image, place), dsv41.resize_patchify(image, *place.arguments()))


# Typed as Any, because the tests pass wrong types on purpose.
untyped: Any = dsv41
IMAGE = noise(4, 6)
WHOLE = ((8, 8), (4, 6), (4, 2), 4)
GEOMETRY = "^invalid V4.1 image geometry"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        pytest.param((IMAGE, (8, 8), (4, 6), (4, 2), 0), ValueError, GEOMETRY, id="patch size 0"),
        pytest.param((IMAGE, (0, 8), (4, 6), (4, 2), 4), ValueError, GEOMETRY, id="canvas height 0"),
        pytest.param((IMAGE, (8, 8), (0, 6), (4, 2), 4), ValueError, GEOMETRY, id="image height 0"),
        pytest.param((IMAGE, (9, 8), (4, 6), (4, 2), 4), ValueError, GEOMETRY, id="canvas not a multiple"),
        pytest.param((IMAGE, (8, 8), (9, 6), (0, 2), 4), ValueError, GEOMETRY, id="image higher than the canvas"),
        pytest.param((IMAGE, (8, 8), (4, 6), (5, 2), 4), ValueError, GEOMETRY, id="image exceeds the bottom"),
        pytest.param((IMAGE, (8, 8), (4, 6), (4, 3), 4), ValueError, GEOMETRY, id="image exceeds the right edge"),
        pytest.param((IMAGE[:0], *WHOLE), ValueError, GEOMETRY, id="array height 0"),
        pytest.param((IMAGE[:, :0].copy(), *WHOLE), ValueError, GEOMETRY, id="array width 0"),
        pytest.param(
            (IMAGE, (2**62, 8), (4, 6), (4, 2), 4), ValueError, "^V4.1 output size overflow", id="canvas size overflows"
        ),
        pytest.param(
            (IMAGE, (2**20, 2**26), (4, 6), (4, 2), 4),
            ValueError,
            "^V4.1 output size overflow",
            id="canvas larger than memory",
        ),
        pytest.param((IMAGE[..., :2].copy(), *WHOLE), ValueError, "expected HWC RGB", id="two channels"),
        pytest.param((IMAGE[:, ::2], *WHOLE), ValueError, "expected contiguous RGB", id="strided"),
        pytest.param((IMAGE[0], *WHOLE), TypeError, "three dimensions", id="two dimensions"),
        pytest.param((IMAGE.astype(np.int16), *WHOLE), TypeError, "uint8", id="another dtype"),
        pytest.param((IMAGE, (8, 8, 3), (4, 6), (4, 2), 4), ValueError, "length", id="size of three numbers"),
        pytest.param((IMAGE, (8, 8), (4, 6), (-1, 2), 4), OverflowError, "negative", id="negative start"),
        pytest.param((IMAGE, (8, 8), (4, 6), (4, 2)), TypeError, "patch_size", id="patch size is missing"),
    ],
)
def test_invalid_arguments_raise_the_documented_error(
    arguments: tuple[object, ...], error: type[Exception], message: str
) -> None:
    """
    Wrong types, ints out of range and invalid values raise different exceptions; the message names the fault.
    """
    assert dsv41.resize_patchify(IMAGE, *WHOLE).any()
    with pytest.raises(error, match=message):
        untyped.resize_patchify(*arguments)
