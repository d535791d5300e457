"""
`_multimodal` does not trust what Python objects report: no object causes a panic, an abort or a hang.
"""

from __future__ import annotations

import gc
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


def list_with_length(length: int) -> Callable[[list[Any]], list[Any]]:
    """
    A list type that reports a wrong length.
    """

    class WrongLength(list[Any]):
        def __len__(self) -> int:
            return length

    return WrongLength


@pytest.mark.parametrize(
    "length", [2**61, 10**11, 0, -1], ids=["beyond the address space", "beyond memory", "zero", "negative"]
)
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda make: untyped_inkling.decode_patchify_batch(make([FILE]), 2), id="decode_patchify_batch"),
        pytest.param(lambda make: untyped_inkling.preprocess_images(make([FILE]), 2), id="preprocess_images"),
        pytest.param(lambda make: untyped_qwen.mrope_image_only_py(4, make([(0, 3, 1, 4, 4)]), 2), id="mrope items"),
        pytest.param(lambda make: untyped_qwen.process_mm(make([9]), [FILE], SPEC), id="process_mm ids"),
        pytest.param(lambda make: untyped_qwen.process_mm([9], make([FILE]), SPEC), id="process_mm images"),
        pytest.param(lambda make: [common.content_hash(make(list(FILE)))], id="content_hash"),
    ],
)
def test_reported_length_of_a_list_is_not_used(
    call: Callable[[Callable[[list[Any]], list[Any]]], Any], length: int
) -> None:
    """
    A wrong length neither causes an allocation nor changes the result.
    """
    expected, got = call(list), call(list_with_length(length))

    assert len(expected) == len(got)
    assert repr(expected) == repr(got)


@pytest.mark.parametrize(
    "ids", [[1, 9], (1, 9), bytes([1, 9]), np.array([1, 9]), range(1, 10, 8)], ids=lambda ids: type(ids).__name__
)
def test_indexable_iterables_are_accepted(ids: object) -> None:
    """
    A prompt can be a list, a tuple, bytes, an array or a range.
    """
    assert untyped_qwen.process_mm(ids, [FILE], SPEC)[0] == [1, 9, 9, 9, 9]


@pytest.mark.parametrize("ids", ["19", {1: 9}, {1, 9}, iter([1, 9]), 9], ids=lambda ids: type(ids).__name__)
def test_other_types_are_refused(ids: object) -> None:
    """
    Text, dictionaries, sets, iterators and ints raise `TypeError`; the message names the type.
    """
    with pytest.raises(TypeError, match=f"expected a list, got .*{type(ids).__name__}"):
        untyped_qwen.process_mm(ids, [FILE], SPEC)


class Endless(np.ndarray[Any, Any]):
    """
    An array that reports itself as its base.
    """

    @property
    def base(self) -> Endless:
        return self


def test_array_that_is_its_own_base_is_copied() -> None:
    """
    The search along the chain of bases ends.
    """
    np.testing.assert_array_equal(common.resize_rgb(IMAGE, 3, 3), common.resize_rgb(IMAGE.view(Endless), 3, 3))


class Elsewhere(np.ndarray[Any, Any]):
    """
    An array that reports foreign bytes as its base, and their address as that of its pixels.
    """

    foreign = IMAGE.tobytes()[::-1]

    @property
    def base(self) -> Any:  # noqa: ANN401 - the stubs of NumPy allow only arrays
        return self.foreign

    @property
    def __array_interface__(self) -> dict[str, Any]:
        interface: dict[str, Any] = np.frombuffer(self.foreign, np.uint8).reshape(self.shape).__array_interface__
        return interface


def test_address_that_a_subclass_reports_is_not_used() -> None:
    """
    The pixels are those of the array, not those at the address that it reports.
    """
    np.testing.assert_array_equal(common.resize_rgb(IMAGE, 3, 3), common.resize_rgb(IMAGE.view(Elsewhere), 3, 3))


def test_a_slice_of_an_array_keeps_the_memory_of_the_result() -> None:
    """
    The memory of a result is freed when the last array that uses it is gone, not with the first.
    """
    same = IMAGE.shape[1], IMAGE.shape[0]
    rows = [common.resize_rgb(IMAGE, *same)[:3] for _ in range(100)]
    gc.collect()

    assert [row.tolist() for row in rows] == [IMAGE[0, 0].tolist()] * 100


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: untyped_common.resize_rgb(IMAGE, 1, 1, LONG), id="resample"),
        pytest.param(lambda: untyped_common.resize_rgb(IMAGE, 1, 1, pass_order=LONG), id="pass order"),
        pytest.param(lambda: common.fetch_bytes(f"/{LONG}"), id="path"),
        pytest.param(lambda: common.fetch_bytes(f"http://{LONG}.invalid/"), id="URL"),
        pytest.param(lambda: qwen_vl.preprocess(FILE, LONG), id="not JSON"),
        pytest.param(lambda: qwen_vl.preprocess(FILE, json.dumps(json.loads(SPEC) | {"resample": LONG})), id="setting"),
        pytest.param(lambda: untyped_qwen.process_mm(type(LONG, (), {})(), [FILE], SPEC), id="type"),
    ],
)
def test_long_text_is_truncated_in_errors(call: Callable[[], object]) -> None:
    """
    An error repeats at most the beginning of a long argument.
    """
    with pytest.raises((ValueError, TypeError)) as error:
        call()

    assert len(str(error.value)) < 400


LITTLE_MEMORY = """
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
    ("call", "allowed"),
    [
        pytest.param("common.content_hash(data)", 16 << 20, id="bytearray"),
        pytest.param("common.content_hash(memoryview(data))", 16 << 20, id="memoryview"),
        pytest.param("common.resize_rgb(image, 1, 1)", 16 << 20, id="array"),
        pytest.param("common.base64_decode(text)", 16 << 20, id="decoding fails"),
        pytest.param("common.base64_decode(text)", 72 << 20, id="copying to Python fails"),
    ],
)
def test_failed_allocation_raises_an_error(call: str, allowed: int) -> None:
    """
    If the memory for a copy to or from Python cannot be allocated, the call raises and the process survives.
    """
    out = subprocess.run(
        [sys.executable, "-c", LITTLE_MEMORY, call, str(allowed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert (out.returncode, out.stdout.split()[:1]) == (0, ["refused"]), out.stderr


PROGRESSIVE = """
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
    limit = used + side * side * (3 if kind == "RGB" else 4) + beyond
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    common.image_decode_rgb(bytes(data))
except ValueError as error:
    print(error)
else:
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / side**2)
"""


def decode_in_child_process(kind: str, beyond: int) -> str:
    """
    Decodes a progressive JPEG with almost no data, whose header states 3000 by 3000 pixels.

    The result is the memory used, in bytes per pixel, or the error. If *beyond* is positive, the process may allocate
    only the memory of the samples and *beyond* bytes more.
    """
    return subprocess.run(
        [sys.executable, "-c", PROGRESSIVE, kind, str(beyond)], check=True, capture_output=True, text=True, timeout=600
    ).stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
@pytest.mark.parametrize(("kind", "most"), [("RGB", 3 + 6), ("CMYK", 4 + 8)])
def test_progressive_jpeg_takes_three_times_the_memory_of_its_samples(kind: str, most: int) -> None:
    """
    The coefficients take twice the memory of the samples, and nothing else is proportional to the size.
    """
    assert float(decode_in_child_process(kind, 0)) < most + 0.5
    assert decode_in_child_process(kind, 16 << 20) == "image decode: not enough memory for the image"
