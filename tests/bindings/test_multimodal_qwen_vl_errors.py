"""
Invalid arguments of `_multimodal.qwen_vl`: the types and messages of the exceptions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from image_files import chunk, saved
from missing_path import ABSENT
from pillow_oracle import noise
from qwen_vl_rules import PAD, TINY, spec
from sglang.srt.rust_extensions._multimodal import qwen_vl

# Typed as Any, because the tests pass wrong types on purpose.
untyped: Any = qwen_vl
IMAGE = saved(noise(4, 4))
THIN = saved(noise(1, 201))


#: A PNG whose header states 30000 by 30000 pixels, with almost no data.
BOMB = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(bytes(1000)))
    + chunk(b"IEND", b"")
)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(lambda: untyped.process_mm([PAD], [], TINY), ValueError, "without image sources", id="no image"),
        pytest.param(
            lambda: untyped.process_mm([1], [], TINY), ValueError, "image sources", id="no image, no placeholder"
        ),
        pytest.param(
            lambda: untyped.process_mm(None, [IMAGE], TINY), ValueError, "without text or input_ids", id="no tokens"
        ),
        pytest.param(
            lambda: untyped.process_mm([], [IMAGE], TINY), ValueError, "without text or input_ids", id="empty tokens"
        ),
        pytest.param(
            lambda: untyped.process_mm([1], [IMAGE] * 65, TINY),
            ValueError,
            "exceeds 64 media items",
            id="65 images",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD, PAD], [IMAGE], TINY),
            ValueError,
            r"2 media placeholder\(s\) but 1 media item",
            id="one placeholder too many",
        ),
        pytest.param(
            lambda: untyped.process_mm([1], [IMAGE], TINY),
            ValueError,
            r"0 media placeholder\(s\) but 1 media item",
            id="no placeholder",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD] * 5000, [IMAGE], TINY),
            ValueError,
            r"5000 media placeholder\(s\) but 1",
            id="5000 placeholders",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD], [IMAGE] * 2, TINY),
            ValueError,
            r"1 media placeholder\(s\) but 2 media item",
            id="one image too many",
        ),
        pytest.param(lambda: untyped.process_mm([PAD], [None], TINY), TypeError, "None", id="None for an image"),
        pytest.param(
            lambda: untyped.process_mm([PAD], [b"text"], TINY),
            ValueError,
            "media item 0: image decode",
            id="not an image",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD] * 3, [IMAGE, b"", b"x"], TINY),
            ValueError,
            "media item 1: image decode",
            id="first of two damaged images",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD], ["!"], TINY),
            ValueError,
            "media item 0: .*base64",
            id="text is not a source",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD], [ABSENT], TINY),
            ValueError,
            "media item 0: media fetch",
            id="file does not exist",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD], [BOMB], TINY), ValueError, "over the cap of 178956970", id="bomb"
        ),
        pytest.param(
            lambda: untyped.preprocess(IMAGE, spec(max_image_pixels=15)),
            ValueError,
            "16 pixels, over the cap of 15",
            id="max_image_pixels",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD], [THIN], TINY), ValueError, "aspect ratio .* got 201.0", id="thin"
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD], [IMAGE], "{"), ValueError, "^qwen_vl spec: ", id="spec is not JSON"
        ),
        pytest.param(
            lambda: untyped.process_mm([2**31], [IMAGE], TINY),
            OverflowError,
            "out of range",
            id="token of more than 32 bits",
        ),
        pytest.param(lambda: untyped.process_mm("text", [IMAGE], TINY), TypeError, "str", id="text for tokens"),
        pytest.param(lambda: untyped.preprocess(b"", TINY), ValueError, "^image decode", id="empty file"),
        pytest.param(lambda: untyped.preprocess("text", TINY), TypeError, "str", id="text to preprocess"),
        pytest.param(
            lambda: untyped.preprocess(IMAGE, spec(patch_size=0)),
            ValueError,
            "sizes must be positive",
            id="patch size 0",
        ),
        pytest.param(
            lambda: untyped.preprocess(IMAGE, spec(min_pixels=2000000)),
            ValueError,
            "min_pixels <= max_pixels",
            id="limits",
        ),
        pytest.param(
            lambda: untyped.preprocess(IMAGE, spec(resample="nearest")),
            ValueError,
            "unknown variant `nearest`",
            id="resample",
        ),
        pytest.param(
            lambda: untyped.smart_resize_py(10000, 10, 28, 3136, 3136),
            ValueError,
            "aspect ratio .* got 1000.0",
            id="too thin",
        ),
        pytest.param(lambda: untyped.smart_resize_py(0, 10, 28, 3136, 3136), ValueError, "empty image", id="height 0"),
        pytest.param(lambda: untyped.smart_resize_py(5, 5, 28, 0, 3136), ValueError, "degenerates", id="lower limit 0"),
        pytest.param(
            lambda: untyped.smart_resize_py(5, 5, 0, 1, 3136), ValueError, "factor must be positive", id="factor 0"
        ),
        pytest.param(
            lambda: untyped.smart_resize_py(-5, 5, 28, 1, 3136), OverflowError, "negative", id="negative side"
        ),
        pytest.param(
            lambda: untyped.mrope_image_only_py(5, [(4, 5, 1, 2, 4)], 2),
            ValueError,
            "out of order/bounds",
            id="item exceeds the prompt",
        ),
        pytest.param(
            lambda: untyped.mrope_image_only_py(5, [(1, 2, 1, 2, 2)], 2),
            ValueError,
            "span does not match grid",
            id="wrong grid",
        ),
        pytest.param(
            lambda: untyped.mrope_image_only_py(5, [(1, 2, 2, 2, 2)], 2), ValueError, "not a still image", id="video"
        ),
        pytest.param(
            lambda: untyped.mrope_image_only_py(5, [], 0), ValueError, "merge_size must be positive", id="merge size 0"
        ),
        pytest.param(
            lambda: untyped.mrope_image_only_py(2**62, [], 2),
            ValueError,
            "not enough memory",
            id="positions larger than memory",
        ),
    ],
)
def test_invalid_arguments_raise_the_documented_error(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    """
    Wrong types, ints out of range and invalid values raise different exceptions; the message names the fault.
    """
    with pytest.raises(error, match=message):
        call()
