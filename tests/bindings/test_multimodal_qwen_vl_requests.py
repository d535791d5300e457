"""
`qwen_vl.process_mm` processes whole requests: it expands prompts, accepts images from every source, and hashes files.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import saved
from pillow_oracle import noise
from qwen_vl_rules import PAD, TEXTS_AND_IMAGES, TINY, positions, same, spec
from sglang.srt.rust_extensions._multimodal import common, qwen_vl


@settings(max_examples=60, deadline=None)
@given(texts_and_images=TEXTS_AND_IMAGES.filter(bool), tail=st.lists(st.integers(0, 9), max_size=6))
def test_random_request_follows_the_published_rules(
    texts_and_images: list[tuple[int, int, int]], tail: list[int]
) -> None:
    """
    Tokens, offsets, grids, features, hashes and positions are correct, and in the order of the prompt.
    """
    ids: list[int] = []
    expanded: list[int] = []
    offsets, images = [], []
    for index, (text, height, width) in enumerate(texts_and_images):
        ids += [*range(text), PAD]
        expanded += [*range(text), *[PAD] * (height * width)]
        offsets.append((len(expanded) - height * width, len(expanded) - 1))
        images.append(saved(noise(4 * height, 4 * width, index), "BMP"))
    ids, expanded = ids + tail, expanded + tail
    grids = [(1, 2 * height, 2 * width) for _, height, width in texts_and_images]
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
    Serves bytes from a thread of this interpreter; gives the URL of the bytes.
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
def test_every_form_of_source_gives_the_same_result(form: str, tmp_path: Path) -> None:
    """
    The same bytes give the same result, including the hash, in every form.
    """
    data = saved(noise(30, 50))
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
    assert same(
        qwen_vl.process_mm([PAD, 5, PAD], [data, data], spec()),
        qwen_vl.process_mm([PAD, 5, PAD], [source[form], data], spec()),
    )


def test_fetch_releases_the_interpreter_lock(url: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A server on another thread of the same interpreter can respond, and the result is that of the bytes.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    data = saved(noise(30, 50))

    assert same(qwen_vl.process_mm([PAD], [data], spec()), qwen_vl.process_mm([PAD], [url(data)], spec()))


def test_hash_depends_on_the_content_not_the_url(url: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The same URL with other content gives another hash.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    red, blue = (saved(np.full((8, 8, 3), colour, np.uint8)) for colour in ((255, 0, 0), (0, 0, 255)))

    hashes = [qwen_vl.process_mm([PAD], [url(data)], TINY)[3] for data in (red, blue)]

    assert hashes == [[common.content_hash(red)], [common.content_hash(blue)]]
    assert hashes[0] != hashes[1]


def test_results_are_in_the_order_of_the_images() -> None:
    """
    Swapping two images swaps their hashes and features; an image sent twice has the same hash twice.
    """
    a, b = (saved(noise(8, 8, seed)) for seed in (1, 2))
    prompt = [PAD, PAD]
    ab, ba, aa = (qwen_vl.process_mm(prompt, images, TINY) for images in ([a, b], [b, a], [a, a]))

    assert ab[3] == ba[3][::-1]
    assert ab[3][0] != ab[3][1]
    assert aa[3] == [ab[3][0]] * 2
    half = len(ab[1]) // 2
    np.testing.assert_array_equal(ab[1], np.concatenate([ba[1][half:], ba[1][:half]]))
    assert ab[0] == ba[0] == aa[0]


def test_hash_depends_on_shape_and_format() -> None:
    """
    The same samples in another shape or file format have another hash.
    """
    flat = noise(8, 12).ravel()
    images = [
        saved(flat.reshape(shape), kind)
        for shape, kind in (((8, 12, 3), "PNG"), ((12, 8, 3), "PNG"), ((8, 12, 3), "BMP"))
    ]

    assert len({qwen_vl.process_mm([PAD], [image], TINY)[3][0] for image in images}) == 3


def test_request_can_have_64_images() -> None:
    """
    64 is the maximum.
    """
    image = saved(noise(4, 4))

    ids, features, grids, *_ = qwen_vl.process_mm([PAD] * 64, [image] * 64, TINY)

    assert ids == [PAD] * 64
    assert grids == [(1, 2, 2)] * 64
    assert len(features) == 64 * 4 * 3 * 2 * 4


def test_byte_budget_covers_all_images() -> None:
    """
    More than 1.25 GiB of files is refused before any file is decoded.
    """
    blob = bytes(64 << 20)

    with pytest.raises(ValueError, match=r"media item 20: .*request media byte budget"):
        qwen_vl.process_mm([PAD] * 21, [blob] * 21, spec())
