"""
`_multimodal.inkling` gives the values of the reference implementation with Pillow and NumPy, and the documented errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden_images
import numpy as np
import pillow_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_files import saved
from PIL import Image
from pillow_oracle import noise
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from sglang.srt.rust_extensions._multimodal import common, inkling

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
def test_values_equal_the_published_values(value: int, expected: list[int]) -> None:
    """
    An image of one pixel, in patches of one pixel, gives one patch and one patch of padding.
    """
    assert [*expected, 0xBFE7, 0xBFE2, 0xBFBF] == inkling.patchify_rgb(np.full((1, 1, 3), value, np.uint8), 1).tolist()


@needs_pillow_13
@pytest.mark.parametrize("path", golden_images.files(), ids=lambda path: path.name)
def test_patches_of_golden_images_equal_the_oracles(path: Path) -> None:
    """
    Images are processed with the serving settings, and without rescaling. Files that Pillow refuses are refused.
    """
    data = path.read_bytes()
    image = golden_images.decoded(data)

    if image is None:
        with pytest.raises(ValueError, match=r"^image decode"):
            inkling.decode_patchify(data, 40)
        return
    served = inkling.rescale_patchify_hash(image, data, 40, 2.0, 2048)
    check(pillow_oracle.inkling(image, 40, 2.0, 2048), served[:3])
    assert common.content_hash(data) == served[3]
    np.testing.assert_array_equal(pillow_oracle.inkling(image, 16)[2], inkling.patchify_rgb(image, 16))


@needs_pillow_13
@pytest.mark.parametrize("path", golden_images.files(), ids=lambda path: path.name)
def test_patches_of_a_file_equal_those_of_its_pixels(path: Path) -> None:
    """
    `decode_patchify` of a file equals `image_decode_rgb` followed by `rescale_patchify_hash`, including errors.
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


@needs_pillow_13
@settings(max_examples=150, deadline=None)
@given(
    height=SIDES,
    width=SIDES,
    patch_size=st.integers(1, 50),
    fraction=st.none() | st.floats(0.05, 4),
    cap=st.none() | st.integers(1, 300),
)
def test_patches_equal_the_oracles_for_any_settings(
    height: int, width: int, patch_size: int, fraction: float | None, cap: int | None
) -> None:
    """
    Images of random content and size are processed both as an array and as a file.
    """
    image = noise(height, width)
    expected = pillow_oracle.inkling(image, patch_size, fraction, cap)

    check(expected, inkling.rescale_patchify_hash(image, b"", patch_size, fraction, cap)[:3])
    check(expected, inkling.decode_patchify(saved(image), patch_size, fraction, cap))


@pytest.mark.parametrize(
    ("shape", "patches"),
    [
        pytest.param((0, 7), 0, id="height 0"),
        pytest.param((0, 0), 0, id="height and width 0"),
        pytest.param((41, 0), 2, id="width 0"),
        pytest.param((40, 40), 2, id="width of one patch"),
    ],
)
def test_grid_of_special_sizes(shape: tuple[int, int], patches: int) -> None:
    """
    Height 0 gives no patches, and width 0 gives patches of padding.

    A width of whole patches gives one more column of padding.
    """
    bits = inkling.patchify_rgb(np.zeros((*shape, 3), np.uint8), 40).reshape(patches, 40, 40, 3)

    if 0 in shape:
        assert (bits == [0xBFE7, 0xBFE2, 0xBFBF]).all()
    else:
        assert (bits[1] == [0xBFE7, 0xBFE2, 0xBFBF]).all()


def test_batch_equals_single_calls() -> None:
    """
    Batch functions give the results of single calls, in order, and the hashes of the files.
    """
    files = [saved(noise(height, width)) for height, width in [(40, 40), (37, 53), (1, 1), (200, 320), (40, 40)]]
    singles = [inkling.decode_patchify(file, 16, 1.5, 90) for file in files]

    for single, batched in zip(singles, inkling.decode_patchify_batch(files, 16, 1.5, 90), strict=True):
        check(single, batched)
    for file, single, processed in zip(files, singles, inkling.preprocess_images(files, 16, 1.5, 90), strict=True):
        check(single, processed[:3])
        assert common.content_hash(file) == processed[3]
    assert inkling.preprocess_images([], 16) == []


def test_hash_is_computed_from_the_file_bytes() -> None:
    """
    `rescale_patchify_hash` hashes *raw_bytes*, even if they are not the file of the array.
    """
    assert common.content_hash(b"hello") == inkling.rescale_patchify_hash(noise(3, 3), b"hello", 2)[3]


def test_returned_arrays_own_their_memory() -> None:
    """
    A returned array is writable and shares no memory with the image or with other results.
    """
    image = noise(5, 5)
    first, second = inkling.patchify_rgb(image, 2), inkling.patchify_rgb(image, 2)
    first[:] = 0

    assert first.flags.writeable
    assert second.any()
    np.testing.assert_array_equal(noise(5, 5), image)


class WrongBase(np.ndarray[Any, np.dtype[np.uint8]]):
    """
    An array whose reported base is a `bytes` object that does not contain the array's memory.
    """

    base = bytes(10_000)  # type: ignore[assignment]  # wrong on purpose


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
        pytest.param(lambda image: image.view(WrongBase), id="a wrong base"),
        pytest.param(lambda image: np.concatenate([image, image])[len(image) :], id="the end of an array"),
    ],
)
def test_patches_do_not_depend_on_the_owner_of_the_memory(view: Callable[[pillow_oracle.Pixels], Any]) -> None:
    """
    Pixels are read correctly both when they are borrowed from `bytes` and when they are copied.
    """
    image = noise(7, 9)

    np.testing.assert_array_equal(pillow_oracle.inkling(image, 4)[2], inkling.patchify_rgb(view(image), 4))


# Typed as Any, because the tests pass wrong types on purpose.
untyped: Any = inkling
IMAGE = noise(4, 6)
FILE = saved(IMAGE)


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        pytest.param(
            "patchify_rgb", (IMAGE, 0), ValueError, "^patch_size must be greater than zero$", id="patch size 0"
        ),
        pytest.param("patchify_rgb", (IMAGE[:, ::2], 4), ValueError, "contiguous RGB", id="strided"),
        pytest.param("patchify_rgb", (IMAGE[..., :1].copy(), 4), ValueError, "HWC RGB", id="one channel"),
        pytest.param("patchify_rgb", (IMAGE[0], 4), TypeError, "three dimensions", id="two dimensions"),
        pytest.param("patchify_rgb", (IMAGE.astype(np.float32), 4), TypeError, "uint8", id="floats"),
        pytest.param("patchify_rgb", (IMAGE, -1), OverflowError, "negative", id="negative patch size"),
        pytest.param("patchify_rgb", (IMAGE, 2**40), ValueError, "not enough memory", id="huge patch size"),
        pytest.param("patchify_rgb", (IMAGE, 2**70), OverflowError, "too", id="patch size of more than 64 bits"),
        pytest.param(
            "decode_patchify", (FILE, 0), ValueError, "^patch_size must be greater than zero$", id="file, patch size 0"
        ),
        pytest.param("decode_patchify", (b"text", 4), ValueError, "^image decode", id="not an image"),
        pytest.param("decode_patchify", ("text", 4), TypeError, "str", id="text"),
        pytest.param(
            "decode_patchify", (FILE, 4, float("nan")), ValueError, "finite and positive", id="fraction is NaN"
        ),
        pytest.param(
            "decode_patchify", (FILE, 4, 1e300), ValueError, "more pixels than can be addressed", id="huge fraction"
        ),
        pytest.param("decode_patchify", (FILE, 4, 1e8), ValueError, "not enough memory", id="large fraction"),
        pytest.param(
            "decode_patchify_batch",
            ([], 0),
            ValueError,
            "^patch_size must be greater than zero$",
            id="batch, patch size 0",
        ),
        pytest.param("decode_patchify_batch", (["text"], 4), TypeError, "str", id="batch of text"),
        pytest.param("decode_patchify_batch", (b"text", 4), TypeError, "int", id="file instead of a batch"),
        pytest.param(
            "decode_patchify_batch",
            ([FILE, b"", b"GIF89a"], 4),
            ValueError,
            r"image 1 of the batch",
            id="first failing image",
        ),
        pytest.param(
            "preprocess_images",
            ([FILE, b"", b"GIF89a"], 4),
            ValueError,
            "^image decode.*image 1 of",
            id="hashed, first failing image",
        ),
        pytest.param(
            "preprocess_images",
            ([], 0),
            ValueError,
            "^patch_size must be greater than zero$",
            id="hashed, patch size 0",
        ),
        pytest.param(
            "rescale_patchify_hash",
            (IMAGE, FILE, 0),
            ValueError,
            "^patch_size must be greater than zero$",
            id="array, patch size 0",
        ),
        pytest.param("rescale_patchify_hash", (IMAGE, "text", 4), TypeError, "str", id="text to hash"),
        pytest.param(
            "rescale_patchify_hash",
            (IMAGE[:0], FILE, 4, 2.0),
            ValueError,
            "input size must be positive",
            id="empty image, enlarged",
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
def test_invalid_arguments_raise_the_documented_error(
    name: str, arguments: tuple[object, ...], error: type[Exception], message: str
) -> None:
    """
    Wrong types, ints out of range and invalid values raise different exceptions; the message names the fault.
    """
    with pytest.raises(error, match=message):
        getattr(untyped, name)(*arguments)
