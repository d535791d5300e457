"""
Decoding, resizing, hashing and fetching, independent of model families.
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
    Decode base64.

    The decoder is strict: it requires the standard alphabet, padding, and unused bits of
    zero. Whitespace is allowed at the ends only.

    Raises `ValueError` ("base64 decode error: ...") for any other input, and if memory is
    insufficient.
    """

def content_hash(data: _Encoded) -> int:
    """
    The 64-bit content hash of a file: the first eight bytes of its BLAKE3 digest as a
    big-endian integer.

    It differs from the `data_hash` of the Python code, which is a SHA-256.
    """

def fetch_bytes(source: str) -> bytes:
    """
    Fetch the bytes of *source*: an `http://` or `https://` URL, a local file as a `file://`
    URL or an absolute path, a `data:` URL, or bare base64.

    The kind is determined by the prefix, case-sensitively; a relative path is taken for
    base64. The text after `file://` is used as the path without decoding. The text after
    the comma of a `data:` URL is decoded as in `base64_decode`; the media type is ignored.

    There are no restrictions on what *source* may reach. For untrusted sources, use the
    fetch policies of the Rust API. At most five redirects are followed, to http and https
    only. `REQUEST_TIMEOUT` is the timeout of a request in whole seconds, redirects included
    (default 3); it is read at each call. Proxies are taken from `http_proxy`, `https_proxy`,
    `all_proxy` and `no_proxy`, as in `requests`. The trusted certificates are Mozilla's, or
    those in the file named by `REQUESTS_CA_BUNDLE` or `CURL_CA_BUNDLE`.

    Raises `ValueError` ("media fetch: ...") if the request fails or is refused, if the
    status is not a success, if the body is empty, or if it exceeds 64 MiB. The message
    contains only scheme, host and port of a URL.
    """

def image_decode_rgb(
    data: _Encoded,
    *,
    exif_transpose: bool = False,
    max_pixels: int = 178956970,
) -> tuple[int, int, NDArray[np.uint8]]:
    """
    Decode a JPEG, PNG, WebP, GIF or BMP file as Pillow's `convert("RGB")` does.

    Returns *(height, width, pixels)* with height * width * 3 uint8 values. The format is
    detected from the bytes. Only the first frame of an animation is decoded, alpha is
    dropped, and colour profiles are ignored. The EXIF orientation is ignored too, unless
    *exif_transpose* is true; then it is applied as in Pillow's `ImageOps.exif_transpose`.

    *max_pixels* limits height * width as stated in the header; it is checked before any
    allocation. The default is the number above which Pillow raises `DecompressionBombError`.

    Raises `ValueError` ("image decode: ...") for damaged files, other formats, samples
    of more than 8 bits, images of more than *max_pixels* or larger than memory, JPEGs of
    more than 100 scans, and unreadable EXIF data if *exif_transpose* is true.
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

    Returns out_h * out_w * 3 uint8 values. *resample* is Pillow's Lanczos or bicubic, or
    the antialiased bicubic that torchvision applies to uint8 CPU tensors.

    *pass_order* selects the Pillow version whose rule determines whether the vertical pass
    comes first: `pillow13` for 13.0, `pillow12_2` for 12.2 and 12.3, `horizontal` for up to
    12.1 (the horizontal pass is always first). The order affects the last bits. `aten_u8`
    ignores it.

    Raises `ValueError` for a size of 0, a number of channels other than 3, an array that is
    not C-contiguous, an unknown name, or a size larger than memory; `TypeError` for another
    dtype or rank.
    """

def scaled_dims(
    w: int,
    h: int,
    rescale_frac: float | None = None,
    rescale_cap: int | None = None,
) -> tuple[int, int]:
    """
    The *(width, height)* in pixels of an image after scaling by *rescale_frac*.

    *rescale_cap* is the maximum length to which the longer side may grow; an image that
    already exceeds it is not shrunk. Halves are rounded up, and each side is at least 1.

    Raises `ValueError` if *rescale_frac* is not finite and positive, or the size is
    larger than memory.
    """
