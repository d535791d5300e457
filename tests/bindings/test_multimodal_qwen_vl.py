"""
`_multimodal.qwen_vl` does what its stub promises: sizes, patches, prompts and positions by the published rules.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from sglang.srt.rust_extensions._multimodal import common, qwen_vl

PAD = 151655
PILLOW_13 = pytest.mark.skipif(PIL.__version__ != "13.0.0", reason="the pass order is that of Pillow 13.0.0")
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


def spec(**fields: object) -> str:
    qwen2 = {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 1003520}
    return json.dumps({"family": "qwen_vl", "image_token_id": PAD, **qwen2, **CLIP, **fields})


#: Two by two pixels a patch, four by four a token, and any picture keeps its size if its sides divide by four.
TINY = spec(patch_size=2, min_pixels=1, max_pixels=1 << 20, **HALF)


def noise(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng((height, width, seed)).integers(0, 256, (height, width, 3), dtype=np.uint8)


def file(image: NDArray[np.uint8], kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, kind)
    return out.getvalue()


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


# What the rules say, written down slowly.


def smart_resize(height: int, width: int, factor: int, low: int, high: int) -> tuple[int, int] | None:
    if max(height, width) / min(height, width) > 200:
        return None
    rows, columns = (round(side / factor) * factor for side in (height, width))
    if rows * columns > high:
        beta = math.sqrt(height * width / high)
        rows, columns = (max(factor, math.floor(side / beta / factor) * factor) for side in (height, width))
    elif rows * columns < low:
        beta = math.sqrt(low / (height * width))
        rows, columns = (math.ceil(side * beta / factor) * factor for side in (height, width))
    return rows, columns


def patchify(image: NDArray[np.uint8], patch: int, merge: int, frames: int) -> NDArray[np.float32]:
    mean, std = (np.array(CLIP[name], np.float32) for name in ("image_mean", "image_std"))
    values = (image.astype(np.float32) / np.float32(255) - mean) / std
    rows, columns = (side // (patch * merge) for side in image.shape[:2])
    blocks = values.reshape(rows, merge, patch, columns, merge, patch, 3).transpose(0, 3, 1, 4, 6, 2, 5)
    flat: NDArray[np.float32] = np.repeat(blocks[:, :, :, :, :, None], frames, axis=5).ravel()
    return flat


def positions(length: int, items: Sequence[tuple[int, int, int, int, int]], merge: int) -> tuple[NDArray[np.int64], int]:
    columns: list[tuple[int, int, int]] = []

    def free() -> int:
        return max((max(column) for column in columns), default=-1) + 1

    for start, _, time, height, width in items:
        while len(columns) < start:
            columns.append((free(),) * 3)
        first = free()
        columns += [(first + t, first + h, first + w) for t in range(time) for h in range(height // merge) for w in range(width // merge)]
    while len(columns) < length:
        columns.append((free(),) * 3)
    return np.array(columns, np.int64).reshape(-1, 3).T.ravel(), free() - length


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
        pytest.param((10, 2000, 28, 3136, 3136), (28, 812), id="thin and tight"),
        pytest.param((31, 639, 28, 3136, 20 * 28 * 28), (28, 560), id="a side that would be zero"),
        pytest.param((1, 200, 28, 3136, 1003520), (28, 812), id="200 to 1"),
        pytest.param((4000, 20, 28, 3136, 1003520), (4004, 28), id="200 to 1, tall"),
    ],
)
def test_smart_resize(arguments: tuple[int, int, int, int, int], expected: tuple[int, int]) -> None:
    """
    Known sizes, height first.
    """
    assert expected == smart_resize(*arguments)
    assert expected == qwen_vl.smart_resize_py(*arguments)


def check_size(height: int, width: int, factor: int, low: int, high: int) -> None:
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
    No size from 1 to 700 tells us from the rule, tight limits or wide.
    """
    check_size(height, width, factor, *limits)


@pytest.mark.parametrize(("factor", "low", "high"), [(28, 3136, 12845056), (32, 65536, 16777216), (28, 3136, 15680)])
def test_smart_resize_below_the_factor(factor: int, low: int, high: int) -> None:
    """
    Every size from 1 to 60, where sides round to nothing.
    """
    for height in range(1, 61):
        for width in range(1, 61):
            check_size(height, width, factor, low, high)


# Patches.


@PILLOW_13
@settings(max_examples=60, deadline=None)
@given(height=st.integers(1, 300), width=st.integers(1, 300), patch=st.sampled_from([14, 16]), frames=st.integers(1, 3))
def test_patches_are_pillows_pixels(height: int, width: int, patch: int, frames: int) -> None:
    """
    With `pil`, pixel values are Pillow's resize, normalised and cut by NumPy.
    """
    size = smart_resize(height, width, 2 * patch, 3136, 100352)
    assume(size is not None)
    assert size is not None
    image = noise(height, width)
    resized = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BICUBIC))

    values, grid = qwen_vl.preprocess(file(image), spec(patch_size=patch, temporal_patch_size=frames, max_pixels=100352, resample="pil"))

    assert grid == (1, size[0] // patch, size[1] // patch)
    assert values.dtype == np.float32
    assert values.flags.writeable
    np.testing.assert_array_equal(patchify(resized, patch, 2, frames), values)


def test_torchvisions_processor_is_the_default() -> None:
    """
    Without a word on it the values are those of `aten_u8`, which differ from Pillow's.
    """
    photo = file(noise(60, 80))
    default = qwen_vl.preprocess(photo, spec())[0]

    np.testing.assert_array_equal(default, qwen_vl.preprocess(photo, spec(resample="aten_u8"))[0])
    assert not np.array_equal(default, qwen_vl.preprocess(photo, spec(resample="pil"))[0])


def test_pass_order_is_a_setting() -> None:
    """
    An older Pillow's order gives other pixels where the orders differ.
    """
    photo = file(noise(480, 640))
    by_order = {order: qwen_vl.preprocess(photo, spec(resample="pil", pass_order=order))[0] for order in ("pillow13", "horizontal")}

    np.testing.assert_array_equal(by_order["pillow13"], qwen_vl.preprocess(photo, spec(resample="pil"))[0])
    assert not np.array_equal(by_order["pillow13"], by_order["horizontal"])


def test_orientation_is_a_setting() -> None:
    """
    With `exif_transpose` a sideways picture is turned before it is cut; without, it stays as it is stored.
    """
    image = noise(8, 12)
    exif = Image.Exif()
    exif[0x0112] = 6
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG", exif=exif)

    stored = qwen_vl.preprocess(out.getvalue(), TINY)
    turned = qwen_vl.preprocess(out.getvalue(), json.dumps({**json.loads(TINY), "exif_transpose": True}))

    assert same(stored, qwen_vl.preprocess(file(image), TINY))
    assert same(turned, qwen_vl.preprocess(file(np.rot90(image, -1).copy()), TINY))
    assert turned[1] == (1, 6, 4)
    assert qwen_vl.process_mm([PAD], [out.getvalue()], json.dumps({**json.loads(TINY), "exif_transpose": True}))[2] == [(1, 6, 4)]


# Positions.

#: Text before a picture, and the picture's height and width in tokens.
STRETCHES = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(1, 5)), max_size=6)


@settings(max_examples=200, deadline=None)
@given(stretches=STRETCHES, tail=st.integers(0, 6), merge=st.integers(1, 3))
def test_positions_follow_the_rule(stretches: list[tuple[int, int, int]], tail: int, merge: int) -> None:
    """
    Whatever stands in the prompt, positions and delta are those of the slow rule.
    """
    items, length = [], 0
    for text, height, width in stretches:
        start = length + text
        length = start + height * width
        items.append((start, length - 1, 1, height * merge, width * merge))

    expected, delta = positions(length + tail, items, merge)
    got = qwen_vl.mrope_image_only_py(length + tail, items, merge)

    np.testing.assert_array_equal(expected, got[0])
    assert delta == got[1]


# Requests.


@settings(max_examples=60, deadline=None)
@given(stretches=STRETCHES.filter(bool), tail=st.lists(st.integers(0, 9), max_size=6))
def test_a_request_expands_by_the_rule(stretches: list[tuple[int, int, int]], tail: list[int]) -> None:
    """
    Tokens, offsets, grids, features, hashes and positions of random prompts, all in prompt order.
    """
    ids: list[int] = []
    expanded: list[int] = []
    offsets, images = [], []
    for index, (text, height, width) in enumerate(stretches):
        ids += [*range(text), PAD]
        expanded += [*range(text), *[PAD] * (height * width)]
        offsets.append((len(expanded) - height * width, len(expanded) - 1))
        images.append(file(noise(4 * height, 4 * width, index), "BMP"))
    ids, expanded = ids + tail, expanded + tail
    grids = [(1, 2 * height, 2 * width) for _, height, width in stretches]
    mrope, delta = positions(len(expanded), [(*offset, *grid) for offset, grid in zip(offsets, grids, strict=True)], 2)

    got = qwen_vl.process_mm(ids, images, TINY)

    assert got[0] == expanded
    np.testing.assert_array_equal(np.concatenate([qwen_vl.preprocess(image, TINY)[0] for image in images]), got[1])
    assert got[2:5] == (grids, [common.content_hash(image) for image in images], offsets)
    np.testing.assert_array_equal(mrope, got[5])
    assert got[6] == delta


@pytest.fixture
def url() -> Iterator[Callable[[bytes], str]]:
    """
    Serves bytes from a thread of this very interpreter.
    """

    class Handler(BaseHTTPRequestHandler):
        body = b""

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def serve(data: bytes) -> str:
        Handler.body = data
        return f"http://127.0.0.1:{server.server_port}/x.png"

    yield serve
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("form", ["bytearray", "data URL", "base64", "path", "file URI"])
def test_every_way_of_sending_a_picture_is_the_same(form: str, tmp_path: Path) -> None:
    """
    The same bytes give the same answer, hash included, whatever way they come.
    """
    data = file(noise(30, 50))
    path = tmp_path / "x.png"
    path.write_bytes(data)
    encoded = base64.b64encode(data).decode()
    source: dict[str, str | bytearray] = {
        "bytearray": bytearray(data),
        "data URL": f"data:image/png;base64,{encoded}",
        "base64": encoded,
        "path": str(path),
        "file URI": f"file://{path}",
    }

    expected = qwen_vl.process_mm([1, PAD, 2], [data], spec())
    assert same(expected, qwen_vl.process_mm([1, PAD, 2], [source[form]], spec()))
    assert same(qwen_vl.process_mm([PAD, 5, PAD], [data, data], spec()), qwen_vl.process_mm([PAD, 5, PAD], [source[form], data], spec()))


def test_the_interpreter_is_free_while_a_picture_is_fetched(url: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A server on another thread of the same interpreter can answer; the answer is that of the bytes.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    data = file(noise(30, 50))

    assert same(qwen_vl.process_mm([PAD], [data], spec()), qwen_vl.process_mm([PAD], [url(data)], spec()))


def test_a_url_that_serves_something_else_has_another_hash(url: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A hash is of the content, never of the name.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    red, blue = (file(np.full((8, 8, 3), colour, np.uint8)) for colour in ((255, 0, 0), (0, 0, 255)))

    hashes = [qwen_vl.process_mm([PAD], [url(data)], TINY)[3] for data in (red, blue)]

    assert hashes == [[common.content_hash(red)], [common.content_hash(blue)]]
    assert hashes[0] != hashes[1]


def test_items_keep_their_slots() -> None:
    """
    Two pictures swapped swap their hashes and features; one sent twice has one hash.
    """
    a, b = (file(noise(8, 8, seed)) for seed in (1, 2))
    prompt = [PAD, PAD]
    ab, ba, aa = (qwen_vl.process_mm(prompt, images, TINY) for images in ([a, b], [b, a], [a, a]))

    assert ab[3] == ba[3][::-1]
    assert ab[3][0] != ab[3][1]
    assert aa[3] == [ab[3][0]] * 2
    half = len(ab[1]) // 2
    np.testing.assert_array_equal(ab[1], np.concatenate([ba[1][half:], ba[1][:half]]))
    assert ab[0] == ba[0] == aa[0]


def test_sides_and_formats_are_part_of_the_hash() -> None:
    """
    The same samples as another shape or in another format are other files.
    """
    flat = noise(8, 12).ravel()
    pictures = [file(flat.reshape(shape), kind) for shape, kind in (((8, 12, 3), "PNG"), ((12, 8, 3), "PNG"), ((8, 12, 3), "BMP"))]

    assert len({qwen_vl.process_mm([PAD], [picture], TINY)[3][0] for picture in pictures}) == 3


def test_sixty_four_items_are_taken() -> None:
    """
    As many as a request may have.
    """
    picture = file(noise(4, 4))

    ids, features, grids, *_ = qwen_vl.process_mm([PAD] * 64, [picture] * 64, TINY)

    assert ids == [PAD] * 64
    assert grids == [(1, 2, 2)] * 64
    assert len(features) == 64 * 4 * 3 * 2 * 4


def test_all_items_share_one_budget_of_bytes() -> None:
    """
    1.25 GiB of files is refused before any of them is looked at.
    """
    blob = bytes(64 << 20)

    with pytest.raises(ValueError, match=r"media item 20: .*request media byte budget"):
        qwen_vl.process_mm([PAD] * 21, [blob] * 21, spec())


# Misuse is the point, so no type checker may look.
untyped: Any = qwen_vl
PICTURE = file(noise(4, 4))
THIN = file(noise(1, 201))


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


#: A header of 30000 by 30000 pixels, and next to nothing behind it.
BOMB = (
    b"\x89PNG\r\n\x1a\n"
    + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0))
    + png_chunk(b"IDAT", zlib.compress(bytes(1000)))
    + png_chunk(b"IEND", b"")
)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        pytest.param(lambda: untyped.process_mm([PAD], [], TINY), ValueError, "without image sources", id="no picture"),
        pytest.param(lambda: untyped.process_mm([1], [], TINY), ValueError, "image sources", id="no picture, no placeholder"),
        pytest.param(lambda: untyped.process_mm(None, [PICTURE], TINY), ValueError, "without text or input_ids", id="no tokens"),
        pytest.param(lambda: untyped.process_mm([], [PICTURE], TINY), ValueError, "without text or input_ids", id="empty tokens"),
        pytest.param(lambda: untyped.process_mm([1], [PICTURE] * 65, TINY), ValueError, "exceeds 64 media items", id="65 pictures"),
        pytest.param(
            lambda: untyped.process_mm([PAD, PAD], [PICTURE], TINY),
            ValueError,
            r"2 media placeholder\(s\) but 1 media item",
            id="a pad too many",
        ),
        pytest.param(
            lambda: untyped.process_mm([1], [PICTURE], TINY), ValueError, r"0 media placeholder\(s\) but 1 media item", id="no pad"
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD] * 5000, [PICTURE], TINY),
            ValueError,
            r"5000 media placeholder\(s\) but 1",
            id="5000 typed pads",
        ),
        pytest.param(
            lambda: untyped.process_mm([PAD], [PICTURE] * 2, TINY),
            ValueError,
            r"1 media placeholder\(s\) but 2 media item",
            id="a picture too many",
        ),
        pytest.param(lambda: untyped.process_mm([PAD], [None], TINY), TypeError, "None", id="null for a picture"),
        pytest.param(lambda: untyped.process_mm([PAD], [b"text"], TINY), ValueError, "media item 0: image decode", id="no picture inside"),
        pytest.param(
            lambda: untyped.process_mm([PAD] * 3, [PICTURE, b"", b"x"], TINY), ValueError, "media item 1: image decode", id="first of two"
        ),
        pytest.param(lambda: untyped.process_mm([PAD], ["!"], TINY), ValueError, "media item 0: .*base64", id="text that is no source"),
        pytest.param(
            lambda: untyped.process_mm([PAD], ["/no/such/file"], TINY), ValueError, "media item 0: media fetch", id="no such file"
        ),
        pytest.param(lambda: untyped.process_mm([PAD], [BOMB], TINY), ValueError, "over the cap of 178956970", id="bomb"),
        pytest.param(
            lambda: untyped.preprocess(PICTURE, spec(max_image_pixels=15)), ValueError, "16 pixels, over the cap of 15", id="own cap"
        ),
        pytest.param(lambda: untyped.process_mm([PAD], [THIN], TINY), ValueError, "aspect ratio .* got 201.0", id="thin"),
        pytest.param(lambda: untyped.process_mm([PAD], [PICTURE], "{"), ValueError, "^qwen_vl spec: ", id="no JSON"),
        pytest.param(lambda: untyped.process_mm([2**31], [PICTURE], TINY), OverflowError, "out of range", id="token beyond 32 bits"),
        pytest.param(lambda: untyped.process_mm("text", [PICTURE], TINY), TypeError, "str", id="text for tokens"),
        pytest.param(lambda: untyped.preprocess(b"", TINY), ValueError, "^image decode", id="nothing to preprocess"),
        pytest.param(lambda: untyped.preprocess("text", TINY), TypeError, "str", id="text to preprocess"),
        pytest.param(lambda: untyped.preprocess(PICTURE, spec(patch_size=0)), ValueError, "sizes must be positive", id="no patch"),
        pytest.param(lambda: untyped.preprocess(PICTURE, spec(min_pixels=2000000)), ValueError, "min_pixels <= max_pixels", id="limits"),
        pytest.param(lambda: untyped.preprocess(PICTURE, spec(resample="nearest")), ValueError, "unknown variant `nearest`", id="resample"),
        pytest.param(lambda: untyped.smart_resize_py(10000, 10, 28, 3136, 3136), ValueError, "aspect ratio .* got 1000.0", id="too thin"),
        pytest.param(lambda: untyped.smart_resize_py(0, 10, 28, 3136, 3136), ValueError, "empty image", id="empty picture"),
        pytest.param(lambda: untyped.smart_resize_py(5, 5, 28, 0, 3136), ValueError, "degenerates", id="no lower limit"),
        pytest.param(lambda: untyped.smart_resize_py(5, 5, 0, 1, 3136), ValueError, "factor must be positive", id="no factor"),
        pytest.param(lambda: untyped.smart_resize_py(-5, 5, 28, 1, 3136), OverflowError, "negative", id="negative side"),
        pytest.param(lambda: untyped.mrope_image_only_py(5, [(4, 5, 1, 2, 4)], 2), ValueError, "out of order/bounds", id="item outside"),
        pytest.param(lambda: untyped.mrope_image_only_py(5, [(1, 2, 1, 2, 2)], 2), ValueError, "span does not match grid", id="wrong grid"),
        pytest.param(lambda: untyped.mrope_image_only_py(5, [(1, 2, 2, 2, 2)], 2), ValueError, "no still picture", id="video"),
        pytest.param(lambda: untyped.mrope_image_only_py(5, [], 0), ValueError, "merge_size must be positive", id="no merging"),
        pytest.param(lambda: untyped.mrope_image_only_py(2**62, [], 2), ValueError, "more memory than there is", id="endless prompt"),
    ],
)
def test_errors_have_a_kind_and_words(call: Callable[[], object], error: type[Exception], words: str) -> None:
    """
    Wrong types, wrong ints and wrong values are told apart, and the message names the fault.
    """
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("name", qwen_vl.__all__)
def test_help_is_there(name: str) -> None:
    """
    Every function carries a docstring and a signature.
    """
    function = getattr(qwen_vl, name)

    assert function.__doc__
    assert function.__text_signature__.startswith("(")
