"""
Remember the output of a process until a file that it depends on changes.

A memo holds the answer and the signature of every such file. It is used only if
all signatures are the same, and only if no other user could have written it.
This is separate from `_toolchain`: that module decides what to ask, and this one
whether an old answer may be used.

Invariant: a memo only saves time; losing all memos changes no result. If reading
fails or a signature is in doubt, the memo is not used.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from .. import _stat, _trust, _warm
from ..files import _sealed, _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    #: By path; `None` for a file that does not exist.
    Signatures = Mapping[str, _warm.Signature | None]

#: Raise it when the stored fields change their meaning.
FORMAT = 2


def signatures(paths: Iterable[str]) -> Signatures:
    """
    The signature of each path.
    """
    return {path: _stat.signature(path) for path in paths}


def are_settled(found: Signatures, started_ns: int) -> bool:
    """
    Whether every edit after `started_ns` (wall clock, ns) changes a signature.
    """
    return all(_stat.is_settled(signature, started_ns) for signature in found.values() if signature is not None)


def now_ns() -> int:
    """
    The wall clock, which the signatures are compared with; tests replace it.
    """
    return time.time_ns()


def recall(file: Path, subject: object) -> dict[str, Any] | None:
    """
    The answer that was stored for a subject; `None` if there is none or if a file has changed.
    """
    try:
        # No other user can write the folder, so none can replace the file between the check and the read.
        if _trust.problem(file.parent) is not None or _trust.problem(file) is not None:
            return None
        memo = _sealed.unseal(file.read_bytes())
        if memo["format"] != FORMAT or memo["subject"] != subject:
            return None
        if any(_as_json(_stat.signature(path)) != stored for path, stored in memo["stamps"].items()):
            return None
        answer = memo["answer"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _as_json(signature: _warm.Signature | None) -> list[int] | None:
    return None if signature is None else list(signature)


def keep(file: Path, subject: object, found: Signatures, answer: dict[str, Any]) -> None:
    """
    Store an answer; failing to write is no error.
    """
    with contextlib.suppress(OSError):
        _staging.write_atomically(
            file, _sealed.seal({"format": FORMAT, "subject": subject, "stamps": found, "answer": answer})
        )
