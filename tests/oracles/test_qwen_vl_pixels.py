"""
`qwen_vl.preprocess` gives the `pixel_values` of both Hugging Face image processors, bit for bit.
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
from image_files import saved
from PIL import Image
from pillow_oracle import noise
from qwen_vl_settings import BACKENDS, SETTINGS, Backend, Setting
from sglang.srt.rust_extensions._multimodal import common, qwen_vl
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

#: The folder of golden images: `SGLANG_GOLDEN`, or that of the repository.
GOLDEN = Path(os.environ.get("SGLANG_GOLDEN") or Path(__file__).parents[1] / "golden")
#: Images with more pixels are compared for one setting only, because the settings differ only in numbers.
LARGE = 3_000_000

by_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
by_backend = pytest.mark.parametrize("backend", BACKENDS)


@cache
def processor(setting: Setting, backend: Backend) -> Any:
    return setting.processor(backend)


def check(data: bytes, image: Image.Image, setting: Setting, backend: Backend) -> None:
    """
    `preprocess` and *backend* give the same grid and the same bits of the patches, or both refuse the image.
    """
    try:
        expected = processor(setting, backend)(images=[image], return_tensors="np")
    except ValueError as refusal:
        with pytest.raises(ValueError, match=str(refusal).split(",")[0]):
            qwen_vl.preprocess(data, setting.spec(backend))
        return
    pixels, grid = qwen_vl.preprocess(data, setting.spec(backend))
    assert [list(grid)] == expected["image_grid_thw"].tolist()
    expected_pixels = np.asarray(expected["pixel_values"])
    assert expected_pixels.dtype == pixels.dtype == np.float32
    assert np.array_equal(expected_pixels.ravel().view(np.uint32), pixels.view(np.uint32))


@by_backend
@by_setting
@pytest.mark.parametrize(
    "size", [(640, 480), (1024, 683), (50, 40), (300, 301), (480, 640), (14, 400), (2, 401)], ids=str
)
def test_pixel_values_of_noise(size: tuple[int, int], setting: Setting, backend: Backend) -> None:
    """
    Random pixels reveal every rounding difference. Sizes are width first; the last one has a refused aspect ratio.
    """
    image = noise(size[1], size[0])

    check(saved(image, "BMP"), Image.fromarray(image), setting, backend)


@by_backend
@given(size=st.tuples(st.integers(1, 700), st.integers(1, 700)), setting=st.sampled_from(SETTINGS))
@settings(max_examples=60, deadline=None)
def test_pixel_values_of_noise_of_any_size(backend: Backend, size: tuple[int, int], setting: Setting) -> None:
    """
    The sizes are random up to 700 pixels.
    """
    image = noise(*size)

    check(saved(image, "BMP"), Image.fromarray(image), setting, backend)


def _golden() -> list[Path]:
    return [path for path in sorted((GOLDEN / "images_open").iterdir()) if path.name != "MANIFEST.tsv"]


# Pillow warns about some files and decodes them nevertheless.
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@by_backend
@pytest.mark.parametrize("path", _golden(), ids=lambda path: path.name)
def test_pixel_values_of_golden_images(path: Path, backend: Backend) -> None:
    """
    Every golden image is compared.

    Hugging Face's processor gets the RGB image without `info`; a transparent colour in it would change pixels.
    """
    data = path.read_bytes()
    try:
        common.image_decode_rgb(data)
    except ValueError:
        # `ci/golden_table.py` checks which files are refused; here `preprocess` must refuse the same ones.
        with pytest.raises(ValueError, match="image decode"):
            qwen_vl.preprocess(data, SETTINGS[0].spec(backend))
        return
    with Image.open(io.BytesIO(data)) as opened:
        image = opened.convert("RGB")
    image.info = {}
    for setting in SETTINGS if image.width * image.height <= LARGE else SETTINGS[:1]:
        check(data, image, setting, backend)


@given(
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
    factor=st.sampled_from([28, 32, 7, 1]),
    limits=st.tuples(st.integers(1, 2**24), st.integers(1, 2**24)).map(sorted),
)
@settings(max_examples=2000, deadline=None)
def test_sizes_equal_those_of_smart_resize(height: int, width: int, factor: int, limits: list[int]) -> None:
    """
    The sizes, factors and limits are random. An aspect ratio that `smart_resize` refuses is refused here too.
    """
    try:
        expected = smart_resize(height, width, factor, *limits)
    except ValueError:
        with pytest.raises(ValueError, match="aspect ratio"):
            qwen_vl.smart_resize_py(height, width, factor, *limits)
    else:
        assert qwen_vl.smart_resize_py(height, width, factor, *limits) == expected
