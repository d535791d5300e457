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
import json
import os
import stat
import time
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

#: Raise it whenever what is remembered changes its meaning.
FORMAT = 1

#: A file changed within this time of being looked at may change again without its stamp moving.
_UNSETTLED_NS = 2_000_000_000


def stamp(path: str) -> list[int] | None:
    """
    What moves whenever a file does; `None` if there is no such file.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def stamps(paths: Iterable[str]) -> dict[str, list[int] | None]:
    """
    The stamp of each path.
    """
    return {path: stamp(path) for path in paths}


def settled(found: dict[str, list[int] | None], started_ns: int) -> bool:
    """
    Whether no file moved so shortly before that it may have moved since.
    """
    return all(item is None or max(item[1], item[3]) < started_ns - _UNSETTLED_NS for item in found.values())


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
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, encoding="utf-8", errors="surrogateescape") as opened:
            if not _ours(os.fstat(opened.fileno())):
                return None
            memo = json.load(opened)
        if memo["format"] != FORMAT or memo["subject"] != subject:
            return None
        if any(stamp(path) != known for path, known in memo["stamps"].items()):
            return None
        answer = memo["answer"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _ours(found: os.stat_result) -> bool:
    """
    Whether nobody but this user and root can have written a file.
    """
    if not hasattr(os, "getuid"):
        return True
    return found.st_uid in (0, os.getuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def keep(file: Path, subject: object, known: dict[str, list[int] | None], answer: dict[str, Any]) -> None:
    """
    Remember an answer; if that cannot be done, do without.
    """
    text = json.dumps({"format": FORMAT, "subject": subject, "stamps": known, "answer": answer})
    temporary = f"{file}.{os.getpid()}.{time.monotonic_ns()}"
    with contextlib.suppress(OSError):
        os.makedirs(file.parent, mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as opened:
                opened.write(text)
            os.replace(temporary, file)
        except OSError:
            os.unlink(temporary)
            raise
