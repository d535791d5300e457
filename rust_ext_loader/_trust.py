"""
Decide whether a file or folder may be run as code, by its owner and permissions.

Everything that is loaded from a cache is code. A file that another user owns or
can write is therefore a miss, never an error. `_warm` holds the rule itself,
because a warm import applies it too.
"""

from __future__ import annotations

import os
import stat

from . import _warm


def problem(path: str | os.PathLike[str]) -> str | None:
    """
    Why a file or folder may not be loaded from, or `None` if it may.

    A symbolic link is refused: another user could have planted it.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        return f"{os.fspath(path)}: {error.strerror}"
    if stat.S_ISLNK(status.st_mode):
        return f"{os.fspath(path)} is a symbolic link"
    reason = _warm.status_problem(status)
    return f"{os.fspath(path)} {reason}" if reason else None
