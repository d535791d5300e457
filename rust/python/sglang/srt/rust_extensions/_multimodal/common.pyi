"""
Pixels, sizes, hashes, sources and text, without any model family.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "base64_decode",
    "content_hash",
    "fetch_bytes",
    "image_decode_rgb",
    "resize_rgb",
    "scaled_dims",
]

_Encoded: TypeAlias = bytes | bytearray | memoryview | Sequence[int]

def base64_decode(encoded: str) -> bytes:
    """
    The bytes that *encoded* stands for.

    Strict: the standard alphabet, padded, the unused bits zero. White space is
    forgiven at the ends only.

    Raises `ValueError` ("base64 decode error: ...") for anything else, and for bytes beyond
    memory.
    """

def content_hash(data: _Encoded) -> int:
    """
    The 64-bit identity of a file: the first eight bytes of its BLAKE3 digest, read
    big-endian.

    Not comparable with the SHA-256 `data_hash` of the Python code.
    """

def fetch_bytes(source: str) -> bytes:
    """
    The bytes that *source* stands for: an `http://` or `https://` URL, a local file by
    `file://` or its absolute path, a `data:` URL, or else bare base64. They are told
    apart by how they begin, letter by letter, so a relative path is none. What follows
    `file://` is the path as it stands, and what follows the comma of a `data:` URL is
    base64 as in `base64_decode`, whatever it says of itself.

    Nothing is checked that *source* may reach: for sources that strangers name there are
    policies in Rust. At most five redirects are followed, to http and https alone. One
    request, redirects included, takes at most as many seconds as `REQUEST_TIMEOUT` says
    at the time (whole seconds; 3). Proxies come from `http_proxy`, `https_proxy`,
    `all_proxy` and `no_proxy`, as in `requests`. Trusted are Mozilla's certificates, or
    those in the file that `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE` names.

    Raises `ValueError` ("media fetch: ...") for what fails or is refused, a status that is
    not one of success, an empty answer, or more than 64 MiB. Of a URL the message has
    scheme, host and port only.
    """

def image_decode_rgb(
    data: _Encoded,
    *,
    exif_transpose: bool = False,
    max_pixels: int = 178956970,
) -> tuple[int, int, NDArray[np.uint8]]:
    """
    Decode a JPEG, PNG, WebP, GIF or BMP file as Pillow's `convert("RGB")` does.

    Gives *(height, width, pixels)* with height * width * 3 uint8 pixels. The format is
    found in the bytes. Only the first frame of an animation is read, alpha is dropped,
    colour profiles are ignored, and so is orientation, unless *exif_transpose* asks to
    turn the image as Pillow's `ImageOps.exif_transpose` does.

    *max_pixels* is how many pixels a header may announce, height * width, before
    anything is allocated. The default is the number above which Pillow sees a
    decompression bomb.

    Raises `ValueError` ("image decode: ...") for damaged files, other formats, samples
    of more than 8 bits, images of more than *max_pixels* or than memory holds, JPEGs of
    more than 100 scans, and EXIF data that cannot be read where they are asked for.
    """

def resize_rgb(
    arr: NDArray[np.uint8],
    out_w: int,
    out_h: int,
    resample: Literal["pil_lanczos", "pil_bicubic", "aten_u8"] = "pil_lanczos",
    *,
    pass_order: Literal["pillow13", "pillow12_2", "horizontal"] = "pillow13",
) -> NDArray[np.uint8]:
    """
    Resize *arr*, a C-contiguous uint8 image of shape (height, width, 3).

    Gives out_h * out_w * 3 uint8 pixels. *resample* is Pillow's Lanczos or bicubic, or
    the antialiased bicubic that torchvision runs on uint8 CPU tensors. *pass_order* is
    whose rule decides if Pillow's vertical pass comes first, which shows in the last
    bits: Pillow 13.0, Pillow 12.2 and 12.3, or up to 12.1 (always horizontal first);
    `aten_u8` ignores it.

    Raises `ValueError` for a size of 0, another number of channels, an array that is
    not C-contiguous, an unknown name, or a size beyond memory; `TypeError` for another
    dtype or rank.
    """

def scaled_dims(
    w: int,
    h: int,
    rescale_frac: float | None = None,
    rescale_cap: int | None = None,
) -> tuple[int, int]:
    """
    The *(width, height)* in pixels of an image scaled by *rescale_frac*.

    *rescale_cap* limits how far the longer side may grow, and never shrinks an image
    that is already above it. Halves round up, and no side falls below 1.

    Raises `ValueError` if *rescale_frac* is not finite and positive, or the size is
    beyond memory.
    """
