"""
`common.image_decode_rgb` decodes files written by Pillow to Pillow's bytes, and refuses the files that Pillow refuses.

These tests iterate over the variants of a format. Tests of single special cases are in the crate, in Rust.
"""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from image_files import check, chunk, saved, scene
from long_runs import amount
from PIL import Image
from pillow_version import needs_pillow_13, pillow_13  # noqa: F401 -- the fixture of the mark
from sglang.srt.rust_extensions._multimodal import common

pytestmark = needs_pillow_13


SIZES = [
    (1, 1),
    (1, 2),
    (2, 1),
    (3, 5),
    (7, 8),
    (8, 7),
    (9, 16),
    (15, 17),
    (16, 16),
    (17, 1),
    (1, 33),
    (31, 33),
    (33, 32),
]


@pytest.mark.parametrize("progressive", [False, True], ids=["baseline", "progressive"])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0", "4:1:1"])
@pytest.mark.parametrize("quality", [1, 50, 95, 100])
def test_jpeg_pixels_equal_pillows(quality: int, subsampling: str, progressive: bool) -> None:
    """
    The sizes are around the block size. The files are RGB and grey, with and without restart markers.
    """
    for (height, width), mode, restart in itertools.product(SIZES, ["RGB", "L"], [0, 1, 3]):
        image = scene(height, width, mode)
        data = saved(
            image,
            "JPEG",
            quality=quality,
            subsampling=subsampling,
            progressive=progressive,
            restart_marker_blocks=restart,
        )
        assert check(data, (height, width, mode, restart)) is not None


def with_adobe(data: bytes, transform: int | None) -> bytes:
    """
    The JPEG with its Adobe segment's colour transform changed, or without the segment.
    """
    at = data.index(b"\xff\xee")
    assert data[at + 4 : at + 9] == b"Adobe"
    if transform is None:
        return data[:at] + data[at + 16 :]
    return data[: at + 15] + bytes([transform]) + data[at + 16 :]


@pytest.mark.parametrize("transform", [0, 2, None], ids=["CMYK", "YCCK", "no Adobe segment"])
@pytest.mark.parametrize("quality", [50, 95])
def test_cmyk_jpeg_pixels_equal_pillows(quality: int, transform: int | None) -> None:
    """
    The files are CMYK, YCCK, or without the Adobe segment. The colours are not inverted.
    """
    for height, width in SIZES:
        data = with_adobe(saved(scene(height, width, "CMYK"), "JPEG", quality=quality), transform)
        assert check(data, (height, width)) is not None
    light = saved(Image.new("CMYK", (32, 32), (0, 255, 255, 0)), "JPEG")
    red = check(with_adobe(light, 0), "red")
    assert red is not None
    assert tuple(red[0, 0] > 128) == (True, False, False)


WEBP = [
    *({"quality": quality, "method": method} for quality in (0, 1, 30, 75, 100) for method in (0, 4, 6)),
    {"lossless": True, "quality": 0},
    {"lossless": True, "quality": 100},
    {"lossless": True, "exact": True},
    {"quality": 60, "alpha_quality": 0},
    {"quality": 60, "alpha_quality": 40},
    {"quality": 60, "exact": True},
    {"quality": 90, "use_sharp_yuv": True},
]


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
@pytest.mark.parametrize(
    "options", WEBP, ids=lambda options: "-".join(f"{key}={value}" for key, value in options.items())
)
def test_webp_pixels_equal_pillows(options: dict[str, Any], mode: str) -> None:
    """
    The files are lossy and lossless, with and without alpha. Alpha is dropped and the colour is kept.
    """
    for height, width in [*SIZES, (97, 131)]:
        image = scene(height, width, mode)
        if mode == "RGBA":
            image.putalpha(scene(height, width, "L"))
        assert check(saved(image, "WEBP", **options), (height, width)) is not None


@pytest.mark.parametrize(
    "options", [{"lossless": True}, {"quality": 40}, {"quality": 80, "minimize_size": True}], ids=str
)
def test_animation_is_decoded_to_its_first_frame(options: dict[str, Any]) -> None:
    """
    The animations are WebP, PNG and GIF files whose frames differ in alpha.
    """
    frames = [scene(19, 23, "RGBA") for _ in range(3)]
    for index, frame in enumerate(frames):
        frame.putalpha(scene(19, 23, "L").point(lambda shade, index=index: (shade * (index + 1)) & 255))
    for kind in ("WEBP", "PNG", "GIF"):
        data = saved(
            frames[0], kind, save_all=True, append_images=frames[1:], duration=40, **(options if kind == "WEBP" else {})
        )
        assert check(data, kind) is not None


def test_max_pixels_limits_the_pixels() -> None:
    """
    An image of exactly *max_pixels* is decoded; the error for a larger one names the setting.
    """
    data = saved(scene(20, 30), "PNG")

    assert common.image_decode_rgb(data, max_pixels=600)[:2] == (20, 30)
    with pytest.raises(ValueError, match="30x20 is 600 pixels, over the cap of 599; raise the setting `max_pixels`"):
        common.image_decode_rgb(data, max_pixels=599)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(lambda: b"", "an empty file", id="empty"),
        pytest.param(lambda: b"not an image", "a text", id="text"),
        pytest.param(lambda: b"<!DOCTYPE html><title>403</title>", "an HTML page", id="HTML"),
        pytest.param(lambda: b'<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing", id="SVG"),
        pytest.param(lambda: b"%PDF-1.7\n", "a PDF file", id="PDF"),
        pytest.param(lambda: b"\0\0\0\x18ftypmp42\0\0\0\0", "an MP4 video", id="MP4"),
        pytest.param(lambda: b"\0\0\0\x1cftypheic\0\0\0\0", "a HEIC file", id="HEIC"),
        pytest.param(lambda: saved(scene(4, 4), "AVIF"), "an AVIF file", id="AVIF"),
        pytest.param(lambda: saved(scene(4, 4), "TIFF"), "a TIFF file", id="TIFF"),
        pytest.param(lambda: saved(scene(4, 4), "JPEG2000"), "a JPEG 2000 file", id="JPEG 2000"),
        pytest.param(lambda: b"RIFF\0\0\0\0WEBP", "a WebP file without image data", id="WebP stub"),
    ],
)
def test_error_names_the_format_and_the_supported_formats(data: Callable[[], bytes], message: str) -> None:
    """
    The error says which kind of file was sent and which formats are decoded.
    """
    with pytest.raises(
        ValueError, match=f"^image decode: {message} is not supported: send a JPEG, PNG, WebP, GIF or BMP file$"
    ):
        common.image_decode_rgb(data())


@pytest.mark.parametrize(
    ("kind", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)], ids=["grey", "RGB", "grey and alpha", "RGBA"]
)
@pytest.mark.parametrize("transparent", [False, True], ids=["", "with tRNS"])
def test_16_bit_samples_are_refused(kind: int, channels: int, transparent: bool) -> None:
    """
    Pillow clips 16-bit greys to 255 and keeps the high byte of other samples.

    A caller cannot choose between the two, so both are refused.
    """
    header = chunk(b"IHDR", struct.pack(">LLBBBBB", 1, 1, 16, kind, 0, 0, 0))
    colour = chunk(b"tRNS", bytes(2 * channels)) if transparent and kind in (0, 2) else b""
    data = chunk(b"IDAT", zlib.compress(bytes(1 + 2 * channels)))

    with pytest.raises(ValueError, match=r"unsupported color.*bit depth of 16"):
        common.image_decode_rgb(b"\x89PNG\r\n\x1a\n" + header + colour + data + chunk(b"IEND", b""))


def damage(data: bytes, random: np.random.Generator) -> bytes:
    """
    The file with one to five bytes changed, half of the time near its start, and sometimes truncated.
    """
    damaged = bytearray(data)
    reach = len(damaged) if random.integers(2) else min(len(damaged), 200)
    for _ in range(random.integers(1, 6)):
        damaged[random.integers(reach)] = random.integers(256)
    if random.integers(8) == 0:
        del damaged[random.integers(len(damaged)) :]
    return bytes(damaged)


def samples(kind: str) -> list[bytes]:
    """
    Files of format *kind*, at least one for each way in which it stores pixels.
    """
    colour, grey, transparent = scene(41, 57), scene(41, 57, "L"), scene(41, 57, "RGBA")
    transparent.putalpha(scene(41, 57, "L"))
    if kind == "JPEG":
        variants: list[dict[str, Any]] = [
            {"quality": 85},
            {"quality": 40, "progressive": True},
            {"subsampling": "4:4:4"},
            {"restart_marker_blocks": 2},
        ]
        cmyk = scene(41, 57, "CMYK")
        return [saved(image, kind, **options) for options in variants for image in (colour, grey, cmyk)]
    if kind == "WEBP":
        variants = [{"quality": 60}, {"lossless": True}]
        return [saved(image, kind, **options) for options in variants for image in (colour, transparent)]
    if kind == "PNG":
        return [saved(image, kind) for image in (colour, grey, transparent, colour.quantize(7), colour.convert("1"))]
    if kind == "GIF":
        return [saved(image, kind, interlace=interlace) for interlace in (0, 1) for image in (colour, grey)]
    return [saved(image, kind) for image in (colour, grey, colour.quantize(200), colour.convert("1"))]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_damaged_files_are_decoded_or_refused_like_pillow(kind: str) -> None:
    """
    Of randomly damaged files, the same ones are refused, and the pixels of the others are equal.
    """
    files = samples(kind)
    decoded = 0
    for seed in range(amount(sample=200, full=20_000)):
        random = np.random.default_rng(seed)
        damaged = damage(files[seed % len(files)], random)
        try:
            common.image_decode_rgb(damaged)
        except ValueError as error:
            # Refused here on purpose, although Pillow decodes them.
            if "unsupported color" in str(error) or "is not supported: send" in str(error):
                continue
        decoded += check(damaged, seed) is not None
    # The checksums of PNG detect nearly all damage, so few of its files are decoded.
    assert decoded > (0 if kind == "PNG" else 20)


BOMBS = """
import resource, struct, threading, zlib
from sglang.srt.rust_extensions._multimodal import common

def chunk(kind, body):
    return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))

def bombs(side):
    long, short = struct.pack(">L", side), struct.pack(">H", side)
    header = chunk(b"IHDR", long * 2 + b"\\x08\\6\\0\\0\\0")
    yield b"\\x89PNG\\r\\n\\x1a\\n" + header + chunk(b"IDAT", zlib.compress(bytes(99)))
    for frame in (b"\\xc0", b"\\xc2"):
        scan = b"\\xff\\xda\\0\\x0c\\3\\1\\0\\2\\0\\3\\0\\0\\x3f\\0"
        yield b"\\xff\\xd8\\xff" + frame + b"\\0\\x11\\x08" + short * 2 + b"\\3\\1\\x22\\0\\2\\x11\\0\\3\\x11\\0" + scan
    yield b"GIF89a" + short[::-1] * 2 + b"\\0\\0\\0," + bytes(4) + short[::-1] * 2 + b"\\0\\2\\2\\x44\\1\\0;"
    yield b"BM" + bytes(12) + b"\\x28\\0\\0\\0" + long[::-1] * 2 + b"\\1\\0\\x08\\0\\1" + bytes(64)
    size = (min(side, 16384) - 1) * 0x4001
    yield b"RIFF\\x12\\0\\0\\0WEBPVP8L\\5\\0\\0\\0\\x2f" + struct.pack("<L", size) + b"\\0"

def refused(data):
    try:
        common.image_decode_rgb(data)
    except ValueError as error:
        messages.append(str(error))

messages, files = [], [data for side in (65500, 30000, 13000) for data in bombs(side)]
limit = 96 << 20
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
# Small stacks, so that the threads fit the limit too.
threading.stack_size(1 << 18)
resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for data in files:
    threads = [threading.Thread(target=refused, args=(data,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(files) * 20, len(messages), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
for text in sorted(set(messages)):
    print(text)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and relies on RLIMIT_AS")
def test_decompression_bombs_are_refused_with_little_memory() -> None:
    """
    Small files with huge sizes in their headers, some within the pixel limit, are decoded on 20 threads at once.

    The process may allocate at most 96 MiB more. Every file must be refused, and the process must survive.
    """
    done = subprocess.run([sys.executable, "-c", BOMBS], check=True, capture_output=True, text=True, timeout=600)

    counts, *messages = done.stdout.splitlines()
    sent, refused, grown = map(int, counts.split())
    assert refused == sent
    assert grown < 96 * 1024
    assert all(text.startswith("image decode: ") for text in messages)
    assert any("65500x65500 is 4290250000 pixels, over the cap of 178956970" in text for text in messages)
    assert any("not enough memory" in text for text in messages)
