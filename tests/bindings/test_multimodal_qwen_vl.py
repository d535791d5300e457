"""
`_multimodal.qwen_vl` computes sizes, patches and positions by the published rules.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pillow_oracle
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from image_files import saved
from PIL import Image
from pillow_oracle import PassOrder, noise
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from qwen_vl_rules import PAD, TEXTS_AND_IMAGES, TINY, patchify, positions, same, smart_resize, spec, tiny
from sglang.srt.rust_extensions._multimodal import qwen_vl

# Sizes.


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((1365, 2048, 28, 3136, 12845056), (1372, 2044), id="photo"),
        pytest.param((100, 100, 28, 3136, 12845056), (112, 112), id="small"),
        pytest.param((3000, 4000, 28, 3136, 1003520), (840, 1148), id="12 megapixels"),
        pytest.param((20, 20, 28, 3136, 12845056), (56, 56), id="below the lower limit"),
        pytest.param((1365, 2048, 32, 65536, 16777216), (1376, 2048), id="factor 32"),
        pytest.param((4000, 48, 32, 4, 1 << 30), (4000, 64), id="half rounds to even"),
        pytest.param((268, 2, 28, 3136, 12845056), (672, 28), id="thin"),
        pytest.param((10, 2000, 28, 3136, 3136), (28, 812), id="thin, small upper limit"),
        pytest.param((31, 639, 28, 3136, 20 * 28 * 28), (28, 560), id="side would be 0"),
        pytest.param((1, 200, 28, 3136, 1003520), (28, 812), id="200 to 1"),
        pytest.param((4000, 20, 28, 3136, 1003520), (4004, 28), id="200 to 1, tall"),
    ],
)
def test_smart_resize_of_an_example(arguments: tuple[int, int, int, int, int], expected: tuple[int, int]) -> None:
    """
    Sizes are height first.
    """
    assert expected == smart_resize(*arguments)
    assert expected == qwen_vl.smart_resize_py(*arguments)


def check_size(height: int, width: int, factor: int, low: int, high: int) -> None:
    """
    The size equals that of the slow reference, or both refuse the aspect ratio.
    """
    expected = smart_resize(height, width, factor, low, high)
    if expected is None:
        with pytest.raises(ValueError, match="absolute aspect ratio must be smaller than 200, got"):
            qwen_vl.smart_resize_py(height, width, factor, low, high)
    else:
        assert expected == qwen_vl.smart_resize_py(height, width, factor, low, high), (height, width, factor, low, high)


@settings(max_examples=1000, deadline=None)
@given(
    height=st.integers(1, 700),
    width=st.integers(1, 700),
    factor=st.sampled_from([28, 32]),
    limits=st.sampled_from([(3136, 1003520), (3136, 12845056), (65536, 16777216), (3136, 15680), (784, 784)]),
)
def test_smart_resize_at_any_size(height: int, width: int, factor: int, limits: tuple[int, int]) -> None:
    """
    The sizes are random up to 700 pixels, and the limits are narrow and wide.
    """
    check_size(height, width, factor, *limits)


@pytest.mark.parametrize(("factor", "low", "high"), [(28, 3136, 12845056), (32, 65536, 16777216), (28, 3136, 15680)])
def test_smart_resize_below_the_factor(factor: int, low: int, high: int) -> None:
    """
    Every size up to 60 pixels is compared, because small sides can round to 0.
    """
    for height in range(1, 61):
        for width in range(1, 61):
            check_size(height, width, factor, low, high)


# Patches.


@needs_pillow_13
@settings(max_examples=60, deadline=None)
@given(height=st.integers(1, 300), width=st.integers(1, 300), patch=st.sampled_from([14, 16]), frames=st.integers(1, 3))
def test_patches_equal_those_of_pillow_and_numpy(height: int, width: int, patch: int, frames: int) -> None:
    """
    With the backend `pil`, the pixel values are those of Pillow's resize, normalised and cut by NumPy.
    """
    size = smart_resize(height, width, 2 * patch, 3136, 100352)
    assume(size is not None)
    assert size is not None
    image = noise(height, width)
    resized = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BICUBIC))

    values, grid = qwen_vl.preprocess(
        saved(image), spec(patch_size=patch, temporal_patch_size=frames, max_pixels=100352, resample="pil")
    )

    assert grid == (1, size[0] // patch, size[1] // patch)
    assert values.dtype == np.float32
    assert values.flags.writeable
    np.testing.assert_array_equal(patchify(resized, patch, 2, frames), values)


def test_default_backend_is_aten_u8() -> None:
    """
    The values of `aten_u8`, which are those of torchvision, differ from Pillow's.
    """
    photo = saved(noise(60, 80))
    default = qwen_vl.preprocess(photo, spec())[0]

    np.testing.assert_array_equal(default, qwen_vl.preprocess(photo, spec(resample="aten_u8"))[0])
    assert not np.array_equal(default, qwen_vl.preprocess(photo, spec(resample="pil"))[0])


@needs_pillow_13
@pytest.mark.parametrize(
    ("size", "vertical_first"),
    [
        pytest.param((1010, 10), {"pillow13", "pillow12_2"}, id="very high"),
        pytest.param((401, 100), {"pillow13"}, id="lower and wider"),
        pytest.param((100, 401), set(), id="higher and narrower"),
    ],
)
def test_pass_order_is_a_setting(size: tuple[int, int], vertical_first: set[str]) -> None:
    """
    With the backend `pil`, the patches are those of the selected Pillow version.
    """
    image = noise(*size)
    target = smart_resize(*size, 28, 3136, 1003520)
    assert target is not None
    by_order = {
        order: pillow_oracle.resized(image, *target, Image.Resampling.BICUBIC, order) for order in get_args(PassOrder)
    }

    for order, resized in by_order.items():
        values, _ = qwen_vl.preprocess(saved(image), spec(resample="pil", pass_order=order))
        np.testing.assert_array_equal(patchify(resized, 14, 2, 2), values, err_msg=order)
    assert vertical_first == {
        order for order, resized in by_order.items() if not np.array_equal(resized, by_order["horizontal"])
    }


def test_exif_transpose_is_a_setting() -> None:
    """
    With `exif_transpose` the EXIF orientation is applied before the image is cut; by default it is ignored.
    """
    image = noise(8, 12)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(image, exif=exif)

    stored = qwen_vl.preprocess(data, TINY)
    turned = qwen_vl.preprocess(data, tiny(exif_transpose=True))

    assert same(stored, qwen_vl.preprocess(saved(image), TINY))
    assert same(turned, qwen_vl.preprocess(saved(np.rot90(image, -1).copy()), TINY))
    assert turned[1] == (1, 6, 4)
    assert qwen_vl.process_mm([PAD], [data], tiny(exif_transpose=True))[2] == [(1, 6, 4)]


# Positions.


@settings(max_examples=200, deadline=None)
@given(texts_and_images=TEXTS_AND_IMAGES, tail=st.integers(0, 6), merge=st.integers(1, 3))
def test_positions_follow_the_rule(texts_and_images: list[tuple[int, int, int]], tail: int, merge: int) -> None:
    """
    For random prompts with images, positions and delta equal those of the slow reference.
    """
    items, length = [], 0
    for text, height, width in texts_and_images:
        start = length + text
        length = start + height * width
        items.append((start, length - 1, 1, height * merge, width * merge))

    expected, delta = positions(length + tail, items, merge)
    got = qwen_vl.mrope_image_only_py(length + tail, items, merge)

    np.testing.assert_array_equal(expected, got[0])
    assert delta == got[1]


@pytest.mark.parametrize("name", qwen_vl.__all__)
def test_function_has_docstring_and_signature(name: str) -> None:
    """
    `help()` shows both.
    """
    function = getattr(qwen_vl, name)

    assert function.__doc__
    assert function.__text_signature__.startswith("(")
