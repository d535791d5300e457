"""
Remember what a process said, for as long as nothing it depends on has moved.

A memo holds the answer together with the stat of every file that decides about
it. It is believed only if each of them is as it was, and only if nobody else
could have written it.

Invariant: a shortcut and nothing more. Any doubt or error means no memo; losing
them all changes no verdict.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from .. import _stat, _trust
from ..files import _sealed, _staging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Raise it whenever what is remembered changes its meaning.
FORMAT = 2


def stamp(path: str) -> list[int] | None:
    """
    What moves whenever a file does; `None` if there is no such file.
    """
    found = _stat.signature(path)
    # As JSON gives it back.
    return None if found is None else list(found)


def stamps(paths: Iterable[str]) -> dict[str, list[int] | None]:
    """
    The stamp of each path.
    """
    return {path: stamp(path) for path in paths}


def settled(found: dict[str, list[int] | None], started_ns: int) -> bool:
    """
    Whether no file moved so shortly before that it may have moved since.
    """
    latest = started_ns - _stat.UNSETTLED_NS
    return all(max(mtime, ctime) < latest for _, mtime, _, ctime in filter(None, found.values()))


def now_ns() -> int:
    """
    The wall clock, which file stamps are compared with.
    """
    return time.time_ns()


def recall(file: Path, subject: object) -> dict[str, Any] | None:
    """
    The answer remembered for a subject, if everything is as it was then.
    """
    try:
        # A folder of our own stands between the two looks at the file.
        if _trust.distrust(file.parent) is not None or _trust.distrust(file) is not None:
            return None
        memo = _sealed.unseal(file.read_bytes())
        if memo["format"] != FORMAT or memo["subject"] != subject:
            return None
        if any(stamp(path) != known for path, known in memo["stamps"].items()):
            return None
        answer = memo["answer"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def keep(file: Path, subject: object, known: dict[str, list[int] | None], answer: dict[str, Any]) -> None:
    """
    Remember an answer; if that cannot be done, do without.
    """
    with contextlib.suppress(OSError):
        _staging.write_atomically(
            file, _sealed.seal({"format": FORMAT, "subject": subject, "stamps": known, "answer": answer})
        )
