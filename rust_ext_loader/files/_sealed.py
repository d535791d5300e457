"""
Notes that say when they were damaged.

A note that only saves time is believed without a second look, so a flipped bit
in it could hide a change. Each is written behind a digest of itself.

Invariant: what is read is, to the bit, what was written.
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
    Plain fields as a note.
    """
    body = json.dumps(fields).encode()
    return _digest(body) + b"\n" + body + b"\n"


def unseal(data: bytes) -> dict[str, Any]:
    """
    The fields of a note.

    Raises `ValueError` for anything else.
    """
    digest, _, rest = data.partition(b"\n")
    body = rest.removesuffix(b"\n")
    if digest != _digest(body) or rest != body + b"\n":
        raise ValueError("damaged")
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise ValueError("no note")  # noqa: TRY004 - to whoever reads it, it is damaged
    return fields


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")
