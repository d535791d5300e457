"""
`exif_transpose` applies the EXIF orientation like Pillow's `ImageOps.exif_transpose`, even from damaged EXIF data.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterator

import pytest
from image_files import check, chunk, saved, scene, segment
from PIL import Image
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark

pytestmark = needs_pillow_13


def exif(*entries: tuple[int, int, int, bytes], order: str = "<", values: bytes = b"") -> bytes:
    """
    A block of EXIF data. An entry is (tag, type, count, four bytes of value or offset); *values* follow the entries.
    """
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}LH", 8, len(entries))
    body = b"".join(struct.pack(f"{order}HHL", *entry[:3]) + entry[3] for entry in entries)
    return head + body + bytes(4) + values


def oriented(value: int, order: str = "<") -> bytes:
    """
    A block of EXIF data with only an orientation.
    """
    return exif((274, 3, 1, struct.pack(f"{order}HH", value, 0)), order=order)


def jpeg_with(image: Image.Image, *segments: bytes, density: bool = False) -> bytes:
    """
    A JPEG with further segments after its JFIF segment. The JFIF segment gives a pixel density if *density* is true.
    """
    data = saved(image, "JPEG", dpi=(72, 72)) if density else saved(image, "JPEG")
    end = 4 + struct.unpack(">H", data[4:6])[0]
    return data[:end] + b"".join(segments) + data[end:]


def png_with(image: Image.Image, *chunks: bytes, after_pixels: bool = False) -> bytes:
    """
    A PNG with further chunks before its pixel data, or after them.
    """
    data = saved(image, "PNG")
    at = data.index(b"IEND" if after_pixels else b"IDAT") - 4
    return data[:at] + b"".join(chunks) + data[at:]


def carriers(image: Image.Image, block: bytes) -> Iterator[tuple[str, bytes]]:
    """
    Files with the EXIF data *block*, one for each format and place that can contain EXIF data.
    """
    app1 = segment(0xE1, b"Exif\0\0" + block)
    profile = (b"Exif\0\0" + block).hex().encode()
    yield "JPEG", jpeg_with(image, app1)
    yield "JPEG with a density", jpeg_with(image, app1, density=True)
    yield (
        "JPEG, in two segments",
        jpeg_with(image, segment(0xE1, b"Exif\0\0" + block[:9]), segment(0xE1, b"Exif\0\0" + block[9:])),
    )
    yield "PNG", png_with(image, chunk(b"eXIf", block))
    yield "PNG, after the pixels", png_with(image, chunk(b"eXIf", block), after_pixels=True)
    yield "PNG, as text", png_with(image, chunk(b"tEXt", b"exif\0" + block))
    yield (
        "PNG, as profile",
        png_with(image, chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\nexif\n 9\n" + profile))),
    )
    # Pillow cannot write an empty chunk.
    if block:
        yield "WebP", saved(image, "WEBP", exif=b"Exif\0\0" + block, quality=50)
        yield "WebP, lossless, bare", saved(image, "WEBP", exif=block, lossless=True)


@pytest.mark.parametrize("orientation", range(10))
def test_orientation_is_applied_like_pillow(orientation: int) -> None:
    """
    The eight orientations and two invalid values are tested in every format and byte order.
    """
    for (height, width), order in itertools.product([(1, 1), (1, 7), (7, 1), (33, 70), (64, 31)], "<>"):
        for name, data in carriers(scene(height, width), oriented(orientation, order)):
            turned = check(data, (name, height, width), exif_transpose=True)
            assert turned is not None
            assert turned.shape[:2] == ((width, height) if orientation in range(5, 9) else (height, width))


def test_orientation_is_ignored_by_default() -> None:
    """
    The default equals Pillow's `convert("RGB")`, which ignores the orientation.
    """
    for name, data in carriers(scene(5, 9), oriented(6)):
        upright = check(data, name)
        assert upright is not None
        assert upright.shape == (5, 9, 3)


XMP = b'<rdf:Description tiff:Orientation="8"/>'


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"junk", id="no TIFF header"),
        pytest.param(oriented(6)[:7], id="truncated in the header"),
        pytest.param(oriented(6)[:15], id="truncated in the entry"),
        pytest.param(oriented(6)[:-4], id="truncated after the entry"),
        pytest.param(b"II+\0" + oriented(6)[4:], id="BigTIFF"),
        pytest.param(oriented(6)[:4] + struct.pack("<L", 5000), id="no directory"),
        pytest.param(
            exif((271, 2, 90, struct.pack("<L", 8)), (274, 3, 1, b"\6\0\0\0")), id="after a value that is too long"
        ),
        pytest.param(
            exif((271, 2, 30, struct.pack("<L", 20)), (274, 3, 1, b"\6\0\0\0")), id="after a value that is truncated"
        ),
        pytest.param(exif((274, 99, 1, b"\3\0\0\0"), (274, 3, 1, b"\6\0\0\0")), id="unknown type first"),
        pytest.param(exif((274, 2, 2, b"6\0\0\0")), id="as text"),
        pytest.param(exif((274, 1, 1, b"\6\0\0\0")), id="as byte"),
        pytest.param(exif((274, 11, 1, struct.pack("<f", 6))), id="as float"),
        pytest.param(exif((274, 5, 1, struct.pack("<L", 26)), values=struct.pack("<LL", 12, 2)), id="as ratio"),
        pytest.param(exif((274, 3, 2, b"\6\0\3\0")), id="twice in one tag"),
    ],
)
@pytest.mark.parametrize("xmp", [b"", XMP], ids=["", "with XMP"])
def test_damaged_exif_is_handled_like_pillow(block: bytes, xmp: bytes) -> None:
    """
    In every format the result equals Pillow's.

    The file is refused, or the damaged EXIF data is used or ignored, or the XMP data is used instead.
    """
    image = scene(5, 9)
    for name, data in carriers(image, block):
        if not xmp:
            check(data, name, exif_transpose=True)
        elif name.startswith("JPEG"):
            end = 4 + struct.unpack(">H", data[4:6])[0]
            with_xmp = data[:end] + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp) + data[end:]
            check(with_xmp, name, exif_transpose=True)
        elif name.startswith("PNG"):
            at = data.index(b"IDAT") - 4
            with_xmp = data[:at] + chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp) + data[at:]
            check(with_xmp, name, exif_transpose=True)
        else:
            check(saved(image, "WEBP", exif=block, xmp=xmp), name, exif_transpose=True)
