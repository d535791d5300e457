"""
`_multimodal.inkling` does what its stub promises: the values of the Pillow and NumPy oracle.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_pictures
import numpy as np
import PIL
import pillow_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import saved
from PIL import Image
from pillow_oracle import noise
from sglang.srt.rust_extensions._multimodal import common, inkling

PILLOW_13 = pytest.mark.skipif(PIL.__version__ != "13.0.0", reason="the bytes of a resize are those of Pillow 13.0.0")
SIDES = st.one_of(st.integers(1, 9), st.integers(1, 130))


def check(expected: tuple[int, int, pillow_oracle.Bits], got: tuple[int, int, pillow_oracle.Bits]) -> None:
    assert expected[:2] == got[:2]
    assert got[2].dtype == np.uint16
    np.testing.assert_array_equal(expected[2], got[2])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, [0xBFE5, 0xBFE0, 0xBFBD]),
        (1, [0xBFE4, 0xBFDE, 0xBFBC]),
        (127, [0x3D7D, 0x3E1E, 0x3EA7]),
        (128, [0x3D9C, 0x3E2D, 0x3EAE]),
        (255, [0x3FF7, 0x4005, 0x4009]),
    ],
)
def test_published_values(value: int, expected: list[int]) -> None:
    """
    One pixel in patches of one pixel: its own patch, and the padding that a whole width always gets.
    """
    assert [*expected, 0xBFE7, 0xBFE2, 0xBFBF] == inkling.patchify_rgb(np.full((1, 1, 3), value, np.uint8), 1).tolist()


@PILLOW_13
@pytest.mark.parametrize("path", golden_pictures.files(), ids=lambda path: path.name)
def test_golden_pictures(path: Path) -> None:
    """
    Every picture that Pillow decodes gives the oracle's patches, as the model is served and as it is; the others are refused.
    """
    data = path.read_bytes()
    image = golden_pictures.decoded(data)

    if image is None:
        with pytest.raises(ValueError, match=r"^image decode"):
            inkling.decode_patchify(data, 40)
        return
    served = inkling.rescale_patchify_hash(image, data, 40, 2.0, 2048)
    check(pillow_oracle.inkling(image, 40, 2.0, 2048), served[:3])
    assert common.content_hash(data) == served[3]
    np.testing.assert_array_equal(pillow_oracle.inkling(image, 16)[2], inkling.patchify_rgb(image, 16))


@PILLOW_13
@pytest.mark.parametrize("path", golden_pictures.files(), ids=lambda path: path.name)
def test_decoding_here_changes_nothing(path: Path) -> None:
    """
    A file that we decode has the patches of the pixels that we decode.
    """
    data = path.read_bytes()
    try:
        height, width, pixels = common.image_decode_rgb(data)
    except ValueError as error:
        refusal = str(error)
    else:
        expected = inkling.rescale_patchify_hash(pixels.reshape(height, width, 3), data, 40, 2.0, 2048)
        check(expected[:3], inkling.decode_patchify(data, 40, 2.0, 2048))
        return

    with pytest.raises(ValueError, match=f"^{re.escape(refusal)}$"):
        inkling.decode_patchify(data, 40, 2.0, 2048)


@PILLOW_13
@settings(max_examples=150, deadline=None)
@given(
    height=SIDES,
    width=SIDES,
    patch_size=st.integers(1, 50),
    fraction=st.none() | st.floats(0.05, 4),
    cap=st.none() | st.integers(1, 300),
)
def test_any_size(height: int, width: int, patch_size: int, fraction: float | None, cap: int | None) -> None:
    """
    No size, fraction or patch size tells us from the oracle, by array or by file.
    """
    image = noise(height, width)
    expected = pillow_oracle.inkling(image, patch_size, fraction, cap)

    check(expected, inkling.rescale_patchify_hash(image, b"", patch_size, fraction, cap)[:3])
    check(expected, inkling.decode_patchify(saved(image), patch_size, fraction, cap))


@pytest.mark.parametrize(
    ("shape", "patches"),
    [
        pytest.param((0, 7), 0, id="no rows"),
        pytest.param((0, 0), 0, id="nothing"),
        pytest.param((41, 0), 2, id="no columns"),
        pytest.param((40, 40), 2, id="a whole width"),
    ],
)
def test_grids_of_odd_arrays(shape: tuple[int, int], patches: int) -> None:
    """
    No rows, no patches; no columns, patches of padding; a whole width, one column of padding more.
    """
    bits = inkling.patchify_rgb(np.zeros((*shape, 3), np.uint8), 40).reshape(patches, 40, 40, 3)

    if 0 in shape:
        assert (bits == [0xBFE7, 0xBFE2, 0xBFBF]).all()
    else:
        assert (bits[1] == [0xBFE7, 0xBFE2, 0xBFBF]).all()


def test_a_batch_is_its_images() -> None:
    """
    Batches give what single calls give, in order, and hash the files.
    """
    files = [saved(noise(height, width)) for height, width in [(40, 40), (37, 53), (1, 1), (200, 320), (40, 40)]]
    singles = [inkling.decode_patchify(file, 16, 1.5, 90) for file in files]

    for single, batched in zip(singles, inkling.decode_patchify_batch(files, 16, 1.5, 90), strict=True):
        check(single, batched)
    for file, single, processed in zip(files, singles, inkling.preprocess_images(files, 16, 1.5, 90), strict=True):
        check(single, processed[:3])
        assert common.content_hash(file) == processed[3]
    assert inkling.preprocess_images([], 16) == []


def test_the_hash_is_of_the_file() -> None:
    """
    Pixels come from the array, the hash from the bytes, whatever they hold.
    """
    assert common.content_hash(b"hello") == inkling.rescale_patchify_hash(noise(3, 3), b"hello", 2)[3]


def test_arrays_are_the_callers_own() -> None:
    """
    What comes out is flat, writable, and shares memory with nothing.
    """
    image = noise(5, 5)
    first, second = inkling.patchify_rgb(image, 2), inkling.patchify_rgb(image, 2)
    first[:] = 0

    assert first.flags.writeable
    assert second.any()
    np.testing.assert_array_equal(noise(5, 5), image)


class Liar(np.ndarray[Any, np.dtype[np.uint8]]):
    """
    Claims to look into bytes that it does not look into.
    """

    base = bytes(10_000)  # type: ignore[assignment]  # the claim


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda image: np.frombuffer(image.tobytes(), np.uint8).reshape(image.shape), id="bytes"),
        pytest.param(
            lambda image: np.frombuffer(b"12345" + image.tobytes(), np.uint8)[5:].reshape(image.shape),
            id="the end of bytes",
        ),
        pytest.param(
            lambda image: np.frombuffer(bytearray(image.tobytes()), np.uint8).reshape(image.shape), id="bytearray"
        ),
        pytest.param(lambda image: np.asarray(Image.fromarray(image)), id="a Pillow image"),
        pytest.param(lambda image: image.view(Liar), id="a liar"),
        pytest.param(lambda image: np.concatenate([image, image])[len(image) :], id="the end of an array"),
    ],
)
def test_pixels_are_found_wherever_they_lie(view: Callable[[pillow_oracle.Pixels], Any]) -> None:
    """
    Who owns the memory of an array is nothing that its patches tell.
    """
    image = noise(7, 9)

    np.testing.assert_array_equal(pillow_oracle.inkling(image, 4)[2], inkling.patchify_rgb(view(image), 4))


# Misuse is the point, so no type checker may look.
untyped: Any = inkling
IMAGE = noise(4, 6)
FILE = saved(IMAGE)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "words"),
    [
        pytest.param("patchify_rgb", (IMAGE, 0), ValueError, "^patch_size must be greater than zero$", id="no patch"),
        pytest.param("patchify_rgb", (IMAGE[:, ::2], 4), ValueError, "contiguous RGB", id="strided"),
        pytest.param("patchify_rgb", (IMAGE[..., :1].copy(), 4), ValueError, "HWC RGB", id="one channel"),
        pytest.param("patchify_rgb", (IMAGE[0], 4), TypeError, "three dimensions", id="two dimensions"),
        pytest.param("patchify_rgb", (IMAGE.astype(np.float32), 4), TypeError, "uint8", id="floats"),
        pytest.param("patchify_rgb", (IMAGE, -1), OverflowError, "negative", id="negative patch"),
        pytest.param("patchify_rgb", (IMAGE, 2**40), ValueError, "more memory than there is", id="absurd patch"),
        pytest.param("patchify_rgb", (IMAGE, 2**70), OverflowError, "too", id="patch beyond 64 bits"),
        pytest.param(
            "decode_patchify", (FILE, 0), ValueError, "^patch_size must be greater than zero$", id="file, no patch"
        ),
        pytest.param("decode_patchify", (b"text", 4), ValueError, "^image decode", id="no image"),
        pytest.param("decode_patchify", ("text", 4), TypeError, "str", id="text"),
        pytest.param("decode_patchify", (FILE, 4, float("nan")), ValueError, "finite and positive", id="no fraction"),
        pytest.param(
            "decode_patchify", (FILE, 4, 1e300), ValueError, "more pixels than can be addressed", id="huge fraction"
        ),
        pytest.param("decode_patchify", (FILE, 4, 1e8), ValueError, "more memory than there is", id="large fraction"),
        pytest.param(
            "decode_patchify_batch", ([], 0), ValueError, "^patch_size must be greater than zero$", id="batch, no patch"
        ),
        pytest.param("decode_patchify_batch", (["text"], 4), TypeError, "str", id="batch of text"),
        pytest.param("decode_patchify_batch", (b"text", 4), TypeError, "int", id="a file for a batch"),
        pytest.param(
            "decode_patchify_batch", ([FILE, b"", b"GIF89a"], 4), ValueError, r"image 1 of the batch", id="first fault"
        ),
        pytest.param(
            "preprocess_images",
            ([FILE, b"", b"GIF89a"], 4),
            ValueError,
            "^image decode.*image 1 of",
            id="first fault, hashed",
        ),
        pytest.param(
            "preprocess_images", ([], 0), ValueError, "^patch_size must be greater than zero$", id="hashed, no patch"
        ),
        pytest.param(
            "rescale_patchify_hash",
            (IMAGE, FILE, 0),
            ValueError,
            "^patch_size must be greater than zero$",
            id="array, no patch",
        ),
        pytest.param("rescale_patchify_hash", (IMAGE, "text", 4), TypeError, "str", id="text to hash"),
        pytest.param(
            "rescale_patchify_hash",
            (IMAGE[:0], FILE, 4, 2.0),
            ValueError,
            "input size must be positive",
            id="nothing to enlarge",
        ),
        pytest.param(
            "rescale_patchify_hash",
            (np.asfortranarray(IMAGE), FILE, 4),
            ValueError,
            "contiguous RGB",
            id="Fortran order",
        ),
    ],
)
def test_errors_have_a_kind_and_words(
    name: str, arguments: tuple[object, ...], error: type[Exception], words: str
) -> None:
    """
    Wrong types, wrong ints and wrong values are told apart, and the message names the fault.
    """
    with pytest.raises(error, match=words):
        getattr(untyped, name)(*arguments)
