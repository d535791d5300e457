"""
`_multimodal.common` gives Pillow's bytes and the documented errors.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
import thread_counts
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import saved
from numpy.typing import NDArray
from PIL import Image
from pillow_oracle import PassOrder, noise
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from sglang.srt.rust_extensions._multimodal import common

PilResample: TypeAlias = Literal["pil_lanczos", "pil_bicubic"]

FILTERS: dict[PilResample, Image.Resampling] = {
    "pil_lanczos": Image.Resampling.LANCZOS,
    "pil_bicubic": Image.Resampling.BICUBIC,
}
SIDES = st.one_of(st.just(1), st.integers(1, 9), st.integers(1, 200))


def resized_by_pillow(image: NDArray[np.uint8], width: int, height: int, resample: PilResample) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(image).resize((width, height), FILTERS[resample])).ravel()


@needs_pillow_13
@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param((480, 640), (476, 644), id="lower and wider, vertical pass first"),
        pytest.param((640, 480), (224, 224), id="photo to a square"),
        pytest.param((300, 100), (60, 50), id="portrait, vertical pass first"),
        pytest.param((1, 1), (7, 5), id="from one pixel"),
        pytest.param((97, 89), (1, 1), id="to one pixel"),
        pytest.param((40, 40), (40, 40), id="same size"),
        pytest.param((40, 40), (40, 17), id="width only"),
        pytest.param((40, 40), (17, 40), id="height only"),
        pytest.param((3, 2000), (3, 31), id="one long axis"),
    ],
)
def test_resize_gives_pillows_bytes(resample: PilResample, before: tuple[int, int], after: tuple[int, int]) -> None:
    """
    The sizes are typical ones. The returned array is flat and writable.
    """
    image = noise(*before)
    height, width = after

    resized = common.resize_rgb(image, width, height, resample)

    assert resized.dtype == np.uint8
    assert resized.shape == (height * width * 3,)
    assert resized.flags.writeable
    np.testing.assert_array_equal(resized_by_pillow(image, width, height, resample), resized)


@needs_pillow_13
@settings(max_examples=150, deadline=None)
@given(before=st.tuples(SIDES, SIDES), after=st.tuples(SIDES, SIDES), resample=st.sampled_from(sorted(FILTERS)))
def test_resize_gives_pillows_bytes_at_any_size(
    before: tuple[int, int], after: tuple[int, int], resample: PilResample
) -> None:
    """
    The images, their sizes and the target sizes are random.
    """
    image = noise(*before)
    height, width = after

    np.testing.assert_array_equal(
        resized_by_pillow(image, width, height, resample), common.resize_rgb(image, width, height, resample)
    )


def test_pass_order_selects_which_pass_is_first() -> None:
    """
    The bytes of a very high image are those of two single-pass resizes in the order of the rule.
    """
    tall = noise(1001, 10)
    across = common.resize_rgb(tall, 5, 1001, "pil_bicubic").reshape(1001, 5, 3)
    down = common.resize_rgb(tall, 10, 500, "pil_bicubic").reshape(500, 10, 3)
    horizontal_first = common.resize_rgb(across, 5, 500, "pil_bicubic")
    vertical_first = common.resize_rgb(down, 5, 500, "pil_bicubic")

    assert not np.array_equal(horizontal_first, vertical_first)
    orders: dict[PassOrder, NDArray[np.uint8]] = {
        "pillow13": vertical_first,
        "pillow12_2": vertical_first,
        "horizontal": horizontal_first,
    }
    for order, expected in orders.items():
        np.testing.assert_array_equal(
            expected, common.resize_rgb(tall, 5, 500, "pil_bicubic", pass_order=order), err_msg=order
        )


def test_lanczos_and_pillow_13_are_the_defaults() -> None:
    """
    The defaults of a resize are `pil_lanczos` and `pillow13`.
    """
    image = noise(300, 100)

    np.testing.assert_array_equal(
        common.resize_rgb(image, 50, 60, "pil_lanczos", pass_order="pillow13"), common.resize_rgb(image, 50, 60)
    )


def test_decode_returns_height_width_and_pixels() -> None:
    """
    Decoding a lossless file gives its pixels; the height is returned before the width.
    """
    image = noise(3, 5)

    height, width, pixels = common.image_decode_rgb(saved(image))

    assert (height, width) == (3, 5)
    np.testing.assert_array_equal(image.ravel(), pixels)


def every_other_byte(data: bytes) -> memoryview:
    return memoryview(bytes(byte for kept in data for byte in (kept, 0)))[::2]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, list, every_other_byte])
def test_encoded_bytes_of_any_type_give_the_same_results(wrap: Callable[[bytes], Any]) -> None:
    """
    The same bytes have the same hash and decode to the same size in every type.
    """
    file = saved(noise(4, 4))

    assert common.content_hash(file) == common.content_hash(wrap(file))
    assert common.image_decode_rgb(file)[:2] == common.image_decode_rgb(wrap(file))[:2]


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 12615508044239446438), (b"hello", 16901752380805513874), (bytes(range(256)) * 5, 0x7586FA21246E8E17)],
)
def test_content_hash_does_not_change(data: bytes, expected: int) -> None:
    """
    Other machines store these hashes, so they must stay the same in every version.
    """
    assert expected == common.content_hash(data)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((80, 60), (80, 60)),
        ((80, 60, 0.5), (40, 30)),
        ((80, 60, 2.0), (160, 120)),
        ((80, 60, 2.0, 120), (120, 90)),
        ((80, 60, 0.9, 40), (72, 54)),
        ((3, 1, 0.1), (1, 1)),
        ((1920, 1080, 2.0, 2048), (2048, 1152)),
    ],
)
def test_scaled_dims(arguments: tuple[Any, ...], expected: tuple[int, int]) -> None:
    """
    Arguments and results are width first.
    """
    assert expected == common.scaled_dims(*arguments)


@given(st.binary())
def test_base64_decodes_what_python_encodes(data: bytes) -> None:
    """
    The text is decoded with and without whitespace at its ends.
    """
    text = base64.b64encode(data).decode()

    assert data == common.base64_decode(text)
    assert data == common.base64_decode(f" \n{text}\t")


# Typed as Any, because the tests pass wrong types on purpose.
untyped: Any = common
IMAGE = np.zeros((4, 6, 3), np.uint8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(lambda: untyped.resize_rgb(IMAGE, 0, 1), ValueError, "output size must be positive", id="width 0"),
        pytest.param(
            lambda: untyped.resize_rgb(IMAGE, 1, 0), ValueError, "output size must be positive", id="height 0"
        ),
        pytest.param(
            lambda: untyped.resize_rgb(IMAGE[:0], 1, 1), ValueError, "input size must be positive", id="empty image"
        ),
        pytest.param(lambda: untyped.resize_rgb(IMAGE, 2**62, 2**62), ValueError, "not enough memory", id="huge size"),
        pytest.param(
            lambda: untyped.resize_rgb(IMAGE, 1, 2**62, "aten_u8"),
            ValueError,
            "not enough memory",
            id="huge height",
        ),
        pytest.param(lambda: untyped.resize_rgb(IMAGE, -1, 1), OverflowError, "negative", id="negative width"),
        pytest.param(
            lambda: untyped.resize_rgb(IMAGE, 1, 2**70), OverflowError, "too", id="height of more than 64 bits"
        ),
        pytest.param(lambda: untyped.resize_rgb(IMAGE, 1.5, 1), TypeError, "float", id="fractional width"),
        pytest.param(lambda: untyped.resize_rgb(IMAGE[..., :1].copy(), 1, 1), ValueError, "RGB", id="one channel"),
        pytest.param(lambda: untyped.resize_rgb(IMAGE[:, ::2], 1, 1), ValueError, "contiguous", id="strided"),
        pytest.param(
            lambda: untyped.resize_rgb(np.asfortranarray(IMAGE), 1, 1), ValueError, "contiguous", id="Fortran order"
        ),
        pytest.param(lambda: untyped.resize_rgb(IMAGE[0], 1, 1), TypeError, "three dimensions", id="two dimensions"),
        pytest.param(lambda: untyped.resize_rgb(IMAGE.astype(np.float32), 1, 1), TypeError, "uint8", id="floats"),
        pytest.param(
            lambda: untyped.resize_rgb(IMAGE, 1, 1, "nearest"), ValueError, "unknown resample `nearest`", id="resample"
        ),
        pytest.param(
            lambda: untyped.resize_rgb(IMAGE, 1, 1, pass_order="9"),
            ValueError,
            "unknown pass order `9`",
            id="pass order",
        ),
        pytest.param(lambda: untyped.image_decode_rgb(b"text"), ValueError, "^image decode", id="not an image"),
        pytest.param(lambda: untyped.image_decode_rgb(b""), ValueError, "^image decode", id="empty file"),
        pytest.param(lambda: untyped.image_decode_rgb("text"), TypeError, "str", id="text to decode"),
        pytest.param(lambda: untyped.content_hash("text"), TypeError, "str", id="text to hash"),
        pytest.param(lambda: untyped.content_hash([256]), OverflowError, "out of range", id="item is not a byte"),
        pytest.param(
            lambda: untyped.content_hash(range(2**46)), OverflowError, "out of range", id="more items than memory"
        ),
        pytest.param(lambda: untyped.content_hash(7), TypeError, "int", id="an int to hash"),
        pytest.param(lambda: untyped.base64_decode("Zg"), ValueError, "^base64 decode error: ", id="no padding"),
        pytest.param(
            lambda: untyped.base64_decode("Zm9v\nZm9v"), ValueError, "^base64 decode error: ", id="inner newline"
        ),
        pytest.param(lambda: untyped.base64_decode("Zh=="), ValueError, "^base64 decode error: ", id="not canonical"),
        pytest.param(lambda: untyped.base64_decode(b"Zg=="), TypeError, "bytes", id="bytes for base64"),
        pytest.param(lambda: untyped.scaled_dims(-1, 1), OverflowError, "negative", id="negative side"),
        pytest.param(
            lambda: untyped.scaled_dims(1, 1, float("nan")),
            ValueError,
            "finite and positive",
            id="fraction is NaN",
        ),
        pytest.param(
            lambda: untyped.scaled_dims(1, 1, -0.5), ValueError, "finite and positive", id="negative fraction"
        ),
        pytest.param(lambda: untyped.scaled_dims(1, 1, 1e300), ValueError, "more pixels", id="huge fraction"),
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


@pytest.mark.parametrize(
    "form",
    [
        "from sglang.srt.rust_extensions._multimodal import common",
        "import sglang.srt.rust_extensions._multimodal.common as common",
        "from sglang.srt.rust_extensions import _multimodal; common = _multimodal.common",
        (
            "import sys; from sglang.srt.rust_extensions._multimodal.common import resize_rgb\n"
            "common = sys.modules[resize_rgb.__module__]"
        ),
    ],
)
def test_every_form_of_import_gives_the_module(form: str) -> None:
    """
    Each form is the first import in a new process.
    """
    code = f"{form}\nprint(common.__name__, common.content_hash(b'hello'))"

    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600).stdout

    assert out.split() == ["sglang.srt.rust_extensions._multimodal.common", "16901752380805513874"]


@pytest.mark.parametrize("name", common.__all__)
def test_function_has_docstring_and_signature(name: str) -> None:
    """
    `help()` shows both.
    """
    function = getattr(common, name)

    assert function.__doc__
    assert function.__text_signature__.startswith("(")


DIGEST = """
import hashlib, numpy as np
from sglang.srt.rust_extensions._multimodal import common
image = np.random.default_rng(0).integers(0, 256, (301, 407, 3), dtype=np.uint8)
digest = hashlib.sha256()
for name in ("pil_lanczos", "pil_bicubic", "aten_u8"):
    digest.update(common.resize_rgb(image, 211, 503, name))
print(digest.hexdigest())
"""


def test_bytes_do_not_depend_on_the_number_of_threads() -> None:
    """
    One to four threads give the same bytes.
    """
    assert len(thread_counts.outputs(DIGEST)) == 1


def test_concurrent_calls_return_their_own_results() -> None:
    """
    Calls from several threads at once neither deadlock nor mix up their results.
    """
    images = [noise(120 + index, 90) for index in range(8)]
    expected = [common.resize_rgb(image, 64, 64) for image in images]
    got: dict[int, list[NDArray[np.uint8]]] = {}

    def work(index: int) -> None:
        got[index] = [common.resize_rgb(images[index], 64, 64) for _ in range(10)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for index, results in got.items():
        for result in results:
            np.testing.assert_array_equal(expected[index], result)
    assert len(got) == len(images)


FORK = """
import os, numpy as np
from sglang.srt.rust_extensions._multimodal import common
image = np.zeros((400, 400, 3), np.uint8)
common.resize_rgb(image, 300, 300)
child = os.fork()
if child == 0:
    common.resize_rgb(image, 300, 300)
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_child_does_not_deadlock() -> None:
    """
    A forked child inherits the pool without its worker threads, so it must not wait for them.
    """
    out = subprocess.run([sys.executable, "-c", FORK], check=True, capture_output=True, text=True, timeout=600).stdout

    assert out.strip() == "7"
