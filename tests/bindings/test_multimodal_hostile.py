"""
`_multimodal` believes no object about itself: what lies gets an `Exception`, never a panic, an abort or a hang.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common, inkling, qwen_vl

# Typed as Any, because the tests pass wrong types on purpose.
untyped_common: Any = common
untyped_inkling: Any = inkling
untyped_qwen: Any = qwen_vl
IMAGE = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
SPEC = json.dumps(
    {
        "image_token_id": 9,
        "patch_size": 2,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "min_pixels": 16,
        "max_pixels": 4096,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    }
)


def png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(IMAGE).save(file, "PNG")
    return file.getvalue()


FILE = png()


def says(length: int) -> Callable[[list[Any]], list[Any]]:
    class Liar(list[Any]):
        def __len__(self) -> int:
            return length

    return Liar


@pytest.mark.parametrize(
    "length", [2**61, 10**11, 0, -1], ids=["beyond addresses", "beyond memory", "nothing", "negative"]
)
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda lie: untyped_inkling.decode_patchify_batch(lie([FILE]), 2), id="decode_patchify_batch"),
        pytest.param(lambda lie: untyped_inkling.preprocess_images(lie([FILE]), 2), id="preprocess_images"),
        pytest.param(lambda lie: untyped_qwen.mrope_image_only_py(4, lie([(0, 3, 1, 4, 4)]), 2), id="mrope items"),
        pytest.param(lambda lie: untyped_qwen.process_mm(lie([9]), [FILE], SPEC), id="process_mm ids"),
        pytest.param(lambda lie: untyped_qwen.process_mm([9], lie([FILE]), SPEC), id="process_mm images"),
        pytest.param(lambda lie: [common.content_hash(lie(list(FILE)))], id="content_hash"),
    ],
)
def test_a_list_is_what_it_gives_and_not_what_it_says(
    call: Callable[[Callable[[list[Any]], list[Any]]], Any], length: int
) -> None:
    """
    A length that is a lie neither takes memory nor changes what comes out.
    """
    honest, lied = call(list), call(says(length))

    assert len(honest) == len(lied)
    assert repr(honest) == repr(lied)


@pytest.mark.parametrize(
    "ids", [[1, 9], (1, 9), bytes([1, 9]), np.array([1, 9]), range(1, 10, 8)], ids=lambda ids: type(ids).__name__
)
def test_whatever_has_places_is_a_list(ids: object) -> None:
    """
    Prompts come as lists, tuples, bytes, arrays and ranges.
    """
    assert untyped_qwen.process_mm(ids, [FILE], SPEC)[0] == [1, 9, 9, 9, 9]


@pytest.mark.parametrize("ids", ["19", {1: 9}, {1, 9}, iter([1, 9]), 9], ids=lambda ids: type(ids).__name__)
def test_what_has_no_places_is_no_list(ids: object) -> None:
    """
    Text, sets, dictionaries and iterators are refused by kind.
    """
    with pytest.raises(TypeError, match=f"expected a list, got .*{type(ids).__name__}"):
        untyped_qwen.process_mm(ids, [FILE], SPEC)


class Endless(np.ndarray[Any, Any]):
    """
    An array that says it looks into itself.
    """

    @property
    def base(self) -> Endless:
        return self


def test_an_array_that_is_its_own_base_is_copied() -> None:
    """
    The search for `bytes` behind an array ends.
    """
    np.testing.assert_array_equal(common.resize_rgb(IMAGE, 3, 3), common.resize_rgb(IMAGE.view(Endless), 3, 3))


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: untyped_common.resize_rgb(IMAGE, 1, 1, LONG), id="resample"),
        pytest.param(lambda: untyped_common.resize_rgb(IMAGE, 1, 1, pass_order=LONG), id="pass order"),
        pytest.param(lambda: common.fetch_bytes(f"/{LONG}"), id="path"),
        pytest.param(lambda: common.fetch_bytes(f"http://{LONG}.invalid/"), id="URL"),
        pytest.param(lambda: qwen_vl.preprocess(FILE, LONG), id="no JSON"),
        pytest.param(lambda: qwen_vl.preprocess(FILE, json.dumps(json.loads(SPEC) | {"resample": LONG})), id="setting"),
        pytest.param(lambda: untyped_qwen.process_mm(type(LONG, (), {})(), [FILE], SPEC), id="type"),
    ],
)
def test_errors_repeat_little(call: Callable[[], object]) -> None:
    """
    However long a text is, an error shows its beginning at most.
    """
    with pytest.raises((ValueError, TypeError)) as error:
        call()

    assert len(str(error.value)) < 400


POOR = """
import resource, sys
import numpy as np
from sglang.srt.rust_extensions._multimodal import common
SIZE = 64 << 20
data, image, text = bytearray(SIZE), np.zeros((1, SIZE // 3, 3), np.uint8), "A" * SIZE
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    eval(sys.argv[1])
except (MemoryError, ValueError) as error:
    print("refused", error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is measured from /proc")
@pytest.mark.parametrize(
    ("call", "room"),
    [
        pytest.param("common.content_hash(data)", 16 << 20, id="bytearray"),
        pytest.param("common.content_hash(memoryview(data))", 16 << 20, id="memoryview"),
        pytest.param("common.resize_rgb(image, 1, 1)", 16 << 20, id="array"),
        pytest.param("common.base64_decode(text)", 16 << 20, id="no room to decode"),
        pytest.param("common.base64_decode(text)", 72 << 20, id="no room to hand over"),
    ],
)
def test_too_little_memory_is_an_error(call: str, room: int) -> None:
    """
    Copies in and out of the interpreter may fail without the process.
    """
    out = subprocess.run(
        [sys.executable, "-c", POOR, call, str(room)], check=False, capture_output=True, text=True, timeout=600
    )

    assert (out.returncode, out.stdout.split()[:1]) == (0, ["refused"]), out.stderr


ROOM = """
import io, resource, struct, sys
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common
kind, side, beyond = sys.argv[1], 3000, int(sys.argv[2])
file = io.BytesIO()
Image.new(kind, (16, 16)).save(file, "JPEG", progressive=True, subsampling=0)
data = bytearray(file.getvalue())
at = data.index(b"\\xff\\xc2")
data[at + 5 : at + 9] = struct.pack(">HH", side, side)
common.image_decode_rgb(file.getvalue())
if beyond:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    room = used + side * side * (3 if kind == "RGB" else 4) + beyond
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    common.image_decode_rgb(bytes(data))
except ValueError as error:
    print(error)
else:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / side**2)
"""


def decoded_in_a_child(kind: str, beyond: int) -> str:
    return subprocess.run(
        [sys.executable, "-c", ROOM, kind, str(beyond)], check=True, capture_output=True, text=True, timeout=600
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in kibibytes")
@pytest.mark.parametrize(("kind", "most"), [("RGB", 3 + 6), ("CMYK", 4 + 8)])
def test_coefficients_of_a_progressive_jpeg_take_twice_its_samples(kind: str, most: int) -> None:
    """
    A file of next to nothing that announces a large picture takes what the picture takes, and no more.
    """
    assert float(decoded_in_a_child(kind, 0)) < most + 0.5
    assert decoded_in_a_child(kind, 16 << 20) == "image decode: the picture needs more memory than there is"
