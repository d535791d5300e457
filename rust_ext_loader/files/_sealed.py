"""
Write small JSON files with a digest, so that damage is noticed when they are read.

Such a file saves work and is not checked against anything else, so one flipped
bit in it could hide a change.

Invariant: `unseal` returns exactly the fields that `seal` wrote, or raises.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def seal(fields: Mapping[str, Any]) -> bytes:
    """
    The fields as JSON behind a SHA-256 digest.
    """
    body = json.dumps(fields).encode()
    return _digest(body) + b"\n" + body + b"\n"


def unseal(data: bytes) -> dict[str, Any]:
    """
    The fields of a sealed file.

    Raises `ValueError` for anything else.
    """
    digest, _, rest = data.partition(b"\n")
    body = rest.removesuffix(b"\n")
    if digest != _digest(body) or rest != body + b"\n":
        raise ValueError("damaged")
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one error type for every damaged file
    return fields


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")
