"""
`qwen_vl.preprocess` gives the very bits of `pixel_values` of both Hugging Face image processors.
"""

from __future__ import annotations

import io
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import saved
from PIL import Image
from pillow_oracle import noise
from qwen_vl_settings import BACKENDS, SETTINGS, Backend, Setting
from sglang.srt.rust_extensions._multimodal import common, qwen_vl
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

#: A folder of golden pictures; those of the repository unless told otherwise.
GOLDEN = Path(os.environ.get("SGLANG_GOLDEN") or Path(__file__).parents[1] / "golden")
#: Pictures with more pixels than this are compared for one setting: the others differ in numbers alone.
LARGE = 3_000_000

by_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
by_backend = pytest.mark.parametrize("backend", BACKENDS)


@cache
def processor(setting: Setting, backend: Backend) -> Any:
    return setting.processor(backend)


def check(data: bytes, picture: Image.Image, setting: Setting, backend: Backend) -> None:
    """
    Both sides agree on the grid and on each bit of the patches, or both refuse.
    """
    try:
        expected = processor(setting, backend)(images=[picture], return_tensors="np")
    except ValueError as refusal:
        with pytest.raises(ValueError, match=str(refusal).split(",")[0]):
            qwen_vl.preprocess(data, setting.spec(backend))
        return
    pixels, grid = qwen_vl.preprocess(data, setting.spec(backend))
    assert [list(grid)] == expected["image_grid_thw"].tolist()
    theirs = np.asarray(expected["pixel_values"])
    assert theirs.dtype == pixels.dtype == np.float32
    assert np.array_equal(theirs.ravel().view(np.uint32), pixels.view(np.uint32))


@by_backend
@by_setting
@pytest.mark.parametrize(
    "size", [(640, 480), (1024, 683), (50, 40), (300, 301), (480, 640), (14, 400), (2, 401)], ids=str
)
def test_noise(size: tuple[int, int], setting: Setting, backend: Backend) -> None:
    """
    Random pixels, in which no difference of rounding hides; width first. The last is too long for any model.
    """
    image = noise(size[1], size[0])

    check(saved(image, "BMP"), Image.fromarray(image), setting, backend)


@by_backend
@given(size=st.tuples(st.integers(1, 700), st.integers(1, 700)), setting=st.sampled_from(SETTINGS))
@settings(max_examples=60, deadline=None)
def test_any_size(backend: Backend, size: tuple[int, int], setting: Setting) -> None:
    """
    Random pixels of any size.
    """
    image = noise(*size)

    check(saved(image, "BMP"), Image.fromarray(image), setting, backend)


def _golden() -> list[Path]:
    return [path for path in sorted((GOLDEN / "images_open").iterdir()) if path.name != "MANIFEST.tsv"]


# Pillow says what is wrong with a file, and decodes it.
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@by_backend
@pytest.mark.parametrize("path", _golden(), ids=lambda path: path.name)
def test_golden_pictures(path: Path, backend: Backend) -> None:
    """
    Each golden picture, from its file; Hugging Face gets Pillow's RGB without the marks that would make it paint over a colour.
    """
    data = path.read_bytes()
    try:
        common.image_decode_rgb(data)
    except ValueError:
        # What is refused, and why, is `ci/golden_table.py`'s matter; here it must be refused alike.
        with pytest.raises(ValueError, match="image decode"):
            qwen_vl.preprocess(data, SETTINGS[0].spec(backend))
        return
    with Image.open(io.BytesIO(data)) as image:
        picture = image.convert("RGB")
    picture.info = {}
    for setting in SETTINGS if picture.width * picture.height <= LARGE else SETTINGS[:1]:
        check(data, picture, setting, backend)


@given(
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
    factor=st.sampled_from([28, 32, 7, 1]),
    limits=st.tuples(st.integers(1, 2**24), st.integers(1, 2**24)).map(sorted),
)
@settings(max_examples=2000, deadline=None)
def test_sizes(height: int, width: int, factor: int, limits: list[int]) -> None:
    """
    The size before patching is `smart_resize`'s; what that refuses is refused.
    """
    try:
        expected = smart_resize(height, width, factor, *limits)
    except ValueError:
        with pytest.raises(ValueError, match="aspect ratio"):
            qwen_vl.smart_resize_py(height, width, factor, *limits)
    else:
        assert qwen_vl.smart_resize_py(height, width, factor, *limits) == expected
