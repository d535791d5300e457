"""
The Inkling processors: Rust and Pillow give the same bits, and a failed load falls back to Pillow.
"""

from __future__ import annotations

import io
import logging
import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pillow_oracle
import pytest
from image_files import saved
from PIL import Image, UnidentifiedImageError
from pillow_oracle import noise
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from sglang.srt.multimodal.bfloat16 import bf16_bits
from sglang.srt.multimodal.inkling.image_processing import InklingImageProcessor
from sglang.srt.multimodal.inkling.image_processing_rust import (
    SWITCH,
    InklingRustImageProcessor,
    inkling_image_processor,
)
from sglang.srt.rust_extensions._multimodal import common

if TYPE_CHECKING:
    from collections.abc import Callable


FILES = [
    saved(noise(40, 40)),
    saved(Image.fromarray(noise(37, 53)).convert("RGBA")),
    saved(Image.fromarray(noise(200, 320)).convert("L")),
    saved(noise(64, 61), "JPEG"),
    saved(Image.fromarray(noise(1, 1)).convert("P"), "GIF"),
]


@needs_pillow_13
@pytest.mark.parametrize("make", [InklingImageProcessor, InklingRustImageProcessor])
@pytest.mark.parametrize("settings", [(40, 2.0, 2048), (16, 2.0, 90), (16, None, None), (7, 0.4, None)])
def test_both_processors_give_the_oracles_bits(
    make: Callable[..., InklingImageProcessor], settings: tuple[Any, ...]
) -> None:
    """
    The two frames of a patch share memory, each patch is one token, and the size is that after rescaling.
    """
    patch_size = settings[0]

    for file, image in zip(FILES, make(*settings)(FILES), strict=True):
        with Image.open(io.BytesIO(file)) as source:
            height, width, bits = pillow_oracle.inkling(np.array(source.convert("RGB")), *settings)
        patches = math.ceil(height / patch_size) * (width // patch_size + 1)
        assert (height, width) == image.size
        assert (patches, 2, patch_size, patch_size, 3) == image.pixel_values.shape
        assert patches == image.num_tokens
        assert image.pixel_values.dtype == np.uint16
        for frame in range(2):
            np.testing.assert_array_equal(bits, image.pixel_values[:, frame].ravel())
        assert np.shares_memory(image.pixel_values[:, 0], image.pixel_values[:, 1])
        assert image.content_hash == (common.content_hash(file) if make is InklingRustImageProcessor else None)


def test_defaults_are_the_serving_settings() -> None:
    """
    Patches of 40 pixels, a rescale by 2, and a longer side of at most 2048 pixels.
    """
    processor = InklingImageProcessor()

    assert (processor.patch_size, processor.rescale_frac, processor.rescale_cap) == (40, 2.0, 2048)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", InklingRustImageProcessor), ("0", InklingImageProcessor), (None, InklingImageProcessor)],
)
def test_environment_variable_selects_the_processor(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: type[InklingImageProcessor]
) -> None:
    """
    The Rust processor is used only if the variable is 1.
    """
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)

    assert type(inkling_image_processor(16, None, None)) is expected
    assert inkling_image_processor(16, None, None).patch_size == 16


def test_failed_load_falls_back_to_pillow(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """
    A failed load logs one warning with the cause. The constructor of the Rust processor itself raises.
    """
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setitem(sys.modules, "sglang.srt.rust_extensions._multimodal", None)
    with caplog.at_level(logging.WARNING):
        processor = inkling_image_processor(16)

    assert type(processor) is InklingImageProcessor
    assert ["_multimodal" in record.getMessage() for record in caplog.records] == [True]
    assert processor(FILES[:1])[0].content_hash is None
    with pytest.raises(ImportError):
        InklingRustImageProcessor()


@pytest.mark.parametrize("make", [InklingImageProcessor, InklingRustImageProcessor])
def test_error_is_that_of_the_first_damaged_file(make: type[InklingImageProcessor]) -> None:
    """
    Both processors raise Pillow's exception for the damaged file that comes first in the list.
    """
    cut = FILES[2][:-200]
    processor = make()

    with pytest.raises(OSError, match="truncated"):
        processor([FILES[0], cut, b"not an image"])
    with pytest.raises(UnidentifiedImageError):
        processor([FILES[0], b"not an image", cut])
    assert processor([]) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0,), "patch_size must be greater than zero"),
        ((40, math.nan), "rescale_frac must be finite and positive"),
        ((40, -1.0), "rescale_frac must be finite and positive"),
        ((40, 2.0, 0), "rescale_cap must be positive"),
        ((40, 1.0, 50), "needs a rescale_frac above 1"),
        ((40, None, 50), "needs a rescale_frac above 1"),
    ],
)
@pytest.mark.parametrize("make", [InklingImageProcessor, InklingRustImageProcessor, inkling_image_processor])
def test_invalid_settings_are_refused(make: Callable[..., object], settings: tuple[Any, ...], message: str) -> None:
    """
    The constructors of both processors raise.
    """
    with pytest.raises(ValueError, match=message):
        make(*settings)


def test_bf16_rounds_to_nearest_even() -> None:
    """
    Values are rounded to the nearest bf16 number, ties to even, for any exponent and sign.
    """
    bits = np.random.default_rng(0).integers(0, 0x7F00_0000, 50_000, dtype=np.uint32)
    bits[::2] &= np.uint32(0xFFFF_8000)
    values = np.concatenate([bits, bits | np.uint32(0x8000_0000)]).view(np.float32)

    np.testing.assert_array_equal(pillow_oracle.bf16(values), bf16_bits(values))
