"""
Compute digests of texts and files.

Every digest over several texts goes through `framed`, so no part of one text
can be mistaken for part of its neighbour.

Invariant: the bytes are part of every cache key and of every signature. A
change here makes all stored entries unreachable and all signatures invalid.
"""

from __future__ import annotations

import hashlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Bytes per read.
CHUNK = 1 << 20


def framed(texts: Iterable[str]) -> bytes:
    """
    The texts in UTF-8, each after its length in 8 bytes, little-endian.
    """
    encoded = (text.encode("utf-8", "surrogateescape") for text in texts)
    return b"".join(len(data).to_bytes(8, "little") + data for data in encoded)


def framed_items(values: Mapping[str, str]) -> bytes:
    """
    The names and values of a mapping, framed, in the order of the names.
    """
    return framed(text for item in sorted(values.items()) for text in item)


def sha256(*parts: bytes) -> str:
    """
    SHA-256 of the parts one after the other, 64 hex digits.
    """
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def of_open_file(descriptor: int) -> str:
    """
    SHA-256 of everything from a descriptor's position to its end.
    """
    hasher = hashlib.sha256()
    while chunk := os.read(descriptor, CHUNK):
        hasher.update(chunk)
    return hasher.hexdigest()


def of_file(path: str | os.PathLike[str]) -> str:
    """
    SHA-256 of a file; raises `OSError`.
    """
    with open(path, "rb", buffering=0) as file:
        return of_open_file(file.fileno())
